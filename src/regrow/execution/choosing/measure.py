"""Times of every module in order of execution, dense and sparse, from the machine's cache or a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regrow.execution.choosing.chains import Stage
from regrow.execution.choosing.probe import Conversion, Probe
from regrow.execution.choosing.record import Call
from regrow.execution.choosing.timings import Timing, Timings, bucket
from regrow.marks import count_of
from regrow.scope import is_inputs_first, is_linear

Timer = Callable[[Mapping[str, Callable[[], None]]], dict[str, float]]
"""From things to run, by name, to milliseconds."""

FOLLOWERS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
"""Modules that keep the layout they get."""

_BUDGET, _MOST_ROUNDS, _SLOW = 0.3, 9, 0.2


def milliseconds(candidates: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """The fastest of some rounds in turns, as many as fit into 0.3 seconds (one to nine), after a first run as warm-up.

    What takes more than 0.2 seconds runs once: warming up would cost more than it corrects. Not the median: on a machine with other
    work, one disturbed measurement would stay in the cache.
    """
    seconds = {name: _seconds(run) for name, run in candidates.items()}
    quick = {name: run for name, run in candidates.items() if seconds[name] <= _SLOW}
    rounds = max(1, min(_MOST_ROUNDS, int(_BUDGET / max(sum(seconds[name] for name in quick), 1e-9))))
    taken = [{name: _seconds(run) for name, run in quick.items()} for _ in range(rounds)]
    return {name: 1e3 * (min(t[name] for t in taken) if name in quick else seconds[name]) for name in candidates}


def _seconds(run: Callable[[], None]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


@dataclass(frozen=True)
class ModuleTimes:
    """Measured milliseconds of one module (see :class:`Stage`); sparse time is taken as affine in density.

    chwn(d) = chwn + slope * (d - density)

    ``window`` is the part of it that growth windows add: dense weight gradients in a fraction of the steps.
    """

    name: str
    kind: str
    ordinary: float
    chwn: float | None = None
    enter: float = 0.0
    leave: float = 0.0
    density: float = 1.0
    slope: float = 0.0
    window: float = 0.0

    def stage(self, density: float | None = None) -> Stage:
        """The stage of a chain, at another density than the measured one if given."""
        chwn = self.chwn
        if chwn is not None and density is not None:
            chwn = max(0.0, chwn + self.slope * (density - self.density))
        return Stage(self.name, self.ordinary, chwn, self.enter, self.leave, self.kind != "follower")

    @property
    def break_even(self) -> float | None:
        """The density up to which the sparse kernels win on this layer alone."""
        if self.chwn is None:
            return None
        gain = self.ordinary - self.chwn
        if self.slope <= 0:
            return 1.0 if gain > 0 else 0.0
        return min(1.0, max(0.0, self.density + gain / self.slope))


class Bench:
    """Asks the cache first, then the stopwatch.

    Args:
        timings: what is known of this machine.
        timer: the stopwatch.
        channels_last: how the dense model keeps images.
        in_windows: fraction of steps inside growth windows, in which weight gradients are dense.
    """

    def __init__(self, timings: Timings, timer: Timer, channels_last: bool, in_windows: float) -> None:
        self.timings, self.timer, self.channels_last, self._in_windows = timings, timer, channels_last, in_windows

    def layer(self, call: Call, module: nn.Module, mask: Tensor, reach: Tensor | None) -> ModuleTimes:
        """A layer that can be either."""
        about, density = self._about(call, module), _density(mask)
        # Far from the real density, as times at low densities hardly differ, and the same for all, to be found in the cache.
        other = 0.25 if density < 0.12 else 0.05
        far = torch.rand(mask.shape, generator=torch.Generator().manual_seed(0)) < other
        wide = _wide(reach)
        far_reach = None if reach is None else reach | far
        candidates: dict[str, tuple[Probe, float]] = {
            f"{about} dense": (self._probe(call, module, False), 1.0),
            f"{about} sparse {bucket(density)}{wide}": (self._probe(call, module, True, mask, reach), density),
            f"{about} sparse {bucket(other)}{wide} random": (self._probe(call, module, True, far, far_reach), other),
        }
        if self._in_windows > 0:
            inside = self._probe(call, module, True, mask, reach, window=True)
            candidates[f"{about} window {bucket(density)}"] = (inside, density)
        dense, near, distant, *window = self._time(candidates)
        # Inside a window the weight gradient costs the same at any density: the slope is that of steps outside.
        slope = max(0.0, (distant.ms - near.ms) / (distant.density - near.density))
        near_ms = near.ms + slope * (density - near.density)
        extra = self._in_windows * (window[0].ms - near_ms) if window else 0.0
        enter, leave = self._conversions(call, module)
        return ModuleTimes(call.name, "layer", dense.ms, near_ms + extra, enter, leave, density, slope, extra)

    def on_kernels(self, call: Call, module: nn.Module, mask: Tensor, reach: Tensor | None) -> Timing:
        """A layer on sparse kernels, outside growth windows."""
        density = _density(mask)
        key = f"{self._about(call, module)} sparse {bucket(density)}{_wide(reach)}"
        return self._time({key: (self._probe(call, module, True, mask, reach), density)})[0]

    def dense(self, call: Call, module: nn.Module) -> Timing:
        """A layer computed dense."""
        return self._time({f"{self._about(call, module)} dense": (self._probe(call, module, False), 1.0)})[0]

    def follower(self, call: Call, module: nn.Module) -> ModuleTimes:
        """A module that keeps the layout it gets."""
        about = self._about(call, module)
        probes = {f"{about} {'chwn' if way else 'ordinary'}": self._probe(call, module, way) for way in (False, True)}
        plain, chwn = self._time({key: (probe, 1.0) for key, probe in probes.items()})
        return ModuleTimes(call.name, "follower", plain.ms, chwn.ms)

    def ordinary(self, call: Call, module: nn.Module) -> ModuleTimes:
        """A module that must have ordinary tensors: its own time is the same whatever is chosen."""
        enter, leave = self._conversions(call, module)
        return ModuleTimes(call.name, "ordinary", 0.0, None, enter, leave)

    def _probe(
        self,
        call: Call,
        module: nn.Module,
        chwn: bool,
        mask: Tensor | None = None,
        reach: Tensor | None = None,
        window: bool = False,
    ) -> Probe:
        return Probe(module, call, chwn, self.channels_last, mask, reach, window)

    def _conversions(self, call: Call, module: nn.Module) -> tuple[float, float]:
        about = f"{_input(call, self.channels_last)} for {'linear' if is_linear(module) else 'maps'}"
        enter = {f"enter {about}": (Conversion(module, call, True, self.channels_last), 1.0)}
        if is_linear(module):
            return self._time(enter)[0].ms, 0.0  # matrix products take transposed operands as they are
        leave = {f"leave {about}": (Conversion(module, call, False, self.channels_last), 1.0)}
        first, second = self._time({**enter, **leave})
        return first.ms, second.ms

    def _about(self, call: Call, module: nn.Module) -> str:
        shapes = [
            f"{name} {tuple(p.shape)}{'' if p.requires_grad else ' frozen'}" for name, p in module.named_parameters()
        ]
        kind = next((c.__name__ for c in type(module).__mro__ if c.__module__.startswith("torch.nn")), "module")
        kind = "inputs first" if is_inputs_first(module) else kind
        return f"{kind}({module.extra_repr()}) {' '.join(shapes)} on {_input(call, self.channels_last)}"

    def _time(self, candidates: Mapping[str, tuple[Probe | Conversion, float]]) -> list[Timing]:
        missing = {key: run for key, (run, _) in candidates.items() if self.timings.get(key) is None}
        for run in missing.values():
            run.prepare()
        for key, ms in (self.timer(missing) if missing else {}).items():
            self.timings.put(key, Timing(ms, candidates[key][1]))
        return [timing for key in candidates if (timing := self.timings.get(key)) is not None]


def keeps_channels_last(model: nn.Module) -> bool:
    """Whether a model has weights in channels_last order, so that its images should be too."""
    return any(
        p.dim() == 4 and p.is_contiguous(memory_format=torch.channels_last) and not p.is_contiguous()
        for p in model.parameters()
    )


def _density(mask: Tensor) -> float:
    return count_of(mask) / mask.numel()


def _wide(reach: Tensor | None) -> str:
    return "" if reach is None else f" gradients {bucket(_density(reach))}"


def _input(call: Call, channels_last: bool) -> str:
    layout = " channels_last" if channels_last and len(call.shape) == 4 else ""
    lower = f" autocast {call.autocast}" if call.autocast else ""
    gradient = "" if call.needs_gradient else " without gradient"
    return f"{'x'.join(map(str, call.shape))} {call.dtype}{layout}{lower}{gradient}".replace("torch.", "")
