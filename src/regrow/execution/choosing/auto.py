"""`auto`: the measured winner, dense or sparse, per chain of layers.

execute("auto")      listen to the next training step, which runs as before (at first: masked)
after that step      time every module of a copy both ways, choose by chain, check the whole model -> verdict
topology update      predict with the measured times; if the choice would change, listen and decide again
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regrow.errors import ExecutionWarning
from regrow.execution.choosing.chains import duration, fastest
from regrow.execution.choosing.measure import FOLLOWERS, Bench, ModuleTimes, Timer, keeps_channels_last
from regrow.execution.choosing.record import Call, Recorder
from regrow.execution.choosing.timings import Timings, machine
from regrow.execution.choosing.trial import Trial, dense_copy
from regrow.execution.modules.chwn import use_chwn
from regrow.execution.modules.layers import attach

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.scope import Layer

MARGIN = 0.98
"""A whole model must take at most this share of its masked time to run sparse; less of a gain could be noise."""
CLEAR = 0.85
"""A gain smaller than this is timed a second time, and must show again."""
HOPELESS = 1.25
"""Everything sparse is tried on the whole model unless the sum of its modules takes more than this share of the masked one."""
UNTESTED_MARGIN = 0.9
"""The same, where only the sum of single modules is known."""


@dataclass(frozen=True)
class Verdict:
    """What was chosen and from which figures: plain data, part of a checkpoint.

    ``predicted`` are the layers that would be sparse by the times of single modules; ``reason`` is what the whole model said.
    """

    sparse: frozenset[str]
    predicted: frozenset[str]
    times: tuple[ModuleTimes, ...]
    reason: str
    seconds: float
    threads: int = field(default_factory=torch.get_num_threads)
    machine: str = field(default_factory=machine)

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        plain = {_SAVED.get(key, key): value for key, value in asdict(self).items()}
        return {**plain, **{key: sorted(plain[key]) for key in ("sparse", "planned")}, "costs": list(plain["costs"])}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Verdict:
        """From a checkpoint."""
        values = {key: plain[_SAVED.get(key, key)] for key in cls.__dataclass_fields__ if _SAVED.get(key, key) in plain}
        names = {key: frozenset(values[key]) for key in ("sparse", "predicted")}
        return cls(**{**values, **names, "times": tuple(ModuleTimes(**found) for found in values["times"])})


_SAVED = {"predicted": "planned", "times": "costs", "reason": "verdict"}
"""Names in checkpoints, where they are others."""


class Auto:
    """Decides for one model.

    Args:
        network: masks.
        model: the model without wrappers.
        layers: those that may be sparse.
        in_windows: fraction of steps inside growth windows, now.
        timer: the stopwatch.
    """

    def __init__(
        self,
        network: SparseNetwork,
        model: nn.Module,
        layers: list[Layer],
        in_windows: Callable[[], float],
        timer: Timer,
    ) -> None:
        self.verdict: Verdict | None = None
        self.count = 0
        self._network, self._model, self._in_windows, self._timer = network, model, in_windows, timer
        names = {id(module): name for name, module in model.named_modules()}
        self._layers = {names[id(layer.module)]: layer for layer in layers}
        self._recorder: Recorder | None = None
        self.listen()

    @property
    def pending(self) -> bool:
        """Whether a verdict is due after the next training step."""
        return self._recorder is not None

    def listen(self) -> None:
        """Record the next training step, to decide after it."""
        if self._recorder is None and self._layers:
            self._recorder = Recorder(self._model)

    def stop(self) -> None:
        """Decide no more."""
        if self._recorder is not None:
            self._recorder.remove()
            self._recorder = None

    def masks_changed(self) -> None:
        """After a topology update: has a density crossed its boundary?"""
        if self.verdict is not None and self.verdict.times:
            densities = {layer.name: self._network.density(layer) for layer in self._layers.values()}
            stages = [c.stage(densities.get(c.name)) for c in self.verdict.times]
            if fastest(stages).sparse != self.verdict.predicted:
                self.listen()

    def restore(self, verdict: Verdict | None, pending: bool) -> None:
        """Go on with a saved verdict, or without one."""
        self.verdict = verdict
        if pending:
            self.listen()
        else:
            self.stop()
        if verdict is not None and (now := (torch.get_num_threads(), machine())) != (
            verdict.threads,
            verdict.machine,
        ):
            warnings.warn(
                f"execution 'auto' was decided on {verdict.machine}; here is {now[1]}: its verdict is kept, but another may be "
                "faster and results may differ in the last bits. handle.execute('auto') measures again",
                ExecutionWarning,
                stacklevel=2,
            )

    def decide(self) -> bool:
        """If a training step was recorded since :meth:`listen`: measure and choose. Training goes on as if nothing had happened."""
        recorder = self._recorder
        if recorder is None or not recorder.calls:
            return False
        self.stop()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            found = self._measured(recorder)
        # Ranks may time differently, but must go on alike.
        self.verdict = Verdict.from_dict(self._network.ranks.first(found.as_dict()))
        self.count += 1
        return True

    def _measured(self, recorder: Recorder) -> Verdict:
        begin = time.perf_counter()
        try:
            twin = dense_copy(self._model)
        except Exception as error:
            reason = f"the model cannot be copied to measure it ({type(error).__name__}: {error})"
            warnings.warn(f"execution 'auto' stays masked: {reason}", ExecutionWarning, stacklevel=2)
            return Verdict(frozenset(), frozenset(), (), reason, 0.0)
        times = self._timings(recorder, twin)
        stages = [timing.stage() for timing in times]
        predicted = fastest(stages).sparse
        every = frozenset(c.name for c in times if c.kind == "layer")
        chosen, reason = frozenset[str](), "dense computation is faster in every chain"
        if predicted or duration(stages, every) <= HOPELESS * duration(stages, frozenset()):
            chosen, reason = self._tried(recorder, twin, times, predicted, every)
        return Verdict(chosen, predicted, tuple(times), reason, time.perf_counter() - begin)

    def _timings(self, recorder: Recorder, twin: nn.Module) -> list[ModuleTimes]:
        timings = Timings()
        bench = Bench(timings, self._timer, keeps_channels_last(twin), self._in_windows())
        measured = [self._timing(bench, call, twin.get_submodule(name)) for name, call in recorder.calls.items()]
        timings.save()
        return [timing for timing in measured if timing is not None]

    def _timing(self, bench: Bench, call: Call, module: nn.Module) -> ModuleTimes | None:
        layer = self._layers.get(call.name)
        if layer is not None:
            mask, reach = self._network.mask_and_reach(layer)
            return bench.layer(replace(call, name=layer.name), module, mask, reach)
        if type(module) in FOLLOWERS and not getattr(module, "return_indices", False):
            return bench.follower(call, module)
        has_weights = any(True for _ in module.parameters())
        return bench.ordinary(call, module) if has_weights and len(call.shape) >= 2 else None

    def _tried(
        self,
        recorder: Recorder,
        twin: nn.Module,
        times: list[ModuleTimes],
        predicted: frozenset[str],
        every: frozenset[str],
    ) -> tuple[frozenset[str], str]:
        """What was predicted, everything sparse, or nothing: whatever the whole model says."""
        stages = [c.stage() for c in times]
        assignments = {"masked": frozenset[str](), "predicted": predicted}
        if predicted != every and duration(stages, every) <= HOPELESS * duration(stages, frozenset()):
            # Sums of modules timed alone miss what they do to each other: caches, and layouts that change between branches.
            assignments["sparse"] = every
        if not predicted:
            del assignments["predicted"]
        try:
            trial = self._trial(recorder, twin, every)
            trial.prepare(assignments.get("sparse", predicted))
            rounds = [self._whole(trial, assignments, times)]
            if min(rounds[0].values()) > CLEAR * rounds[0]["masked"]:
                rounds.append(self._whole(trial, assignments, times))
        except Exception as error:
            masked, with_sparse = duration(stages, frozenset()), duration(stages, predicted)
            sums = f"sums of modules: {masked:.1f} ms masked, {with_sparse:.1f} ms with sparse layers"
            wins = with_sparse <= UNTESTED_MARGIN * masked
            return predicted if wins else frozenset(), f"the whole model could not be timed ({error}); {sums}"
        return _judged(assignments, rounds)

    def _whole(
        self, trial: Trial, assignments: Mapping[str, frozenset[str]], times: list[ModuleTimes]
    ) -> dict[str, float]:
        """Milliseconds of the whole model, with what growth windows add in the mean over steps."""
        ms = trial.time(assignments, self._timer)
        return {
            name: ms[name] + sum(c.window for c in times if c.name in sparse) for name, sparse in assignments.items()
        }

    def _trial(self, recorder: Recorder, twin: nn.Module, names: frozenset[str]) -> Trial:
        if recorder.batch is None:
            raise RuntimeError("it was not called as a whole")
        executions = {}
        for place, layer in self._layers.items():
            if layer.name in names:
                mask, reach = self._network.mask_and_reach(layer)
                executions[layer.name] = attach(twin.get_submodule(place), mask, reach)
        use_chwn(twin)
        precision = next(iter(recorder.calls.values())).autocast
        return Trial(twin, executions, recorder.batch, precision)


def _judged(assignments: Mapping[str, frozenset[str]], rounds: list[dict[str, float]]) -> tuple[frozenset[str], str]:
    """The fastest assignment, if it wins in every round."""
    best = min(set(assignments) - {"masked"}, key=lambda name: rounds[-1][name])
    wins = all(ms[best] <= MARGIN * ms["masked"] for ms in rounds)
    layers = "1 sparse layer" if len(assignments[best]) == 1 else f"{len(assignments[best])} sparse layers"
    verdict = f"whole model: {rounds[-1]['masked']:.1f} ms masked, {rounds[-1][best]:.1f} ms with {layers}"
    return (assignments[best], verdict) if wins else (frozenset(), f"{verdict}, which does not win")
