"""What sparse convolutions could save: the paper's two estimates, averaged over a whole training run.

For each convolution l (no shortcuts, no linear layers, forward pass only), in every training pass:

    a = share of non-zero entries of its input              w = share of non-zero weights
    e = share of input channels without any weight          z = share of (sample, channel) maps of its input that are all zero
    t = measured time of the dense convolution

    sparse convolution:  weights only t w     activations only t a     both t a w          (the paper's "FLOP reduction")
    dense convolution:   empty channels t (1 - e)     and dead maps t (1 - e)(1 - z)       (the paper's "empty channels")

Means per layer over segments of 1000 passes are summed over layers; the speed-up is the sum of t over the sum of the reduced time.
Dead maps differ from sample to sample, so that the last estimate is a bound that fixed kernels do not reach.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regrow.scope import is_shortcut

SEGMENT = 1000
ESTIMATES = ("weights", "activations", "both", "empty_channels", "empty_channels_dead_maps")
_SHARES = ("activation_density", "weight_density", "empty_share", "dead_share")


@torch.no_grad()
def shares(inputs: Tensor, weight: Tensor) -> dict[str, float]:
    """a, w, e and z of one convolution.

    Example:
        >>> shares(torch.tensor([[[[1.0, 0.0]], [[0.0, 0.0]]]]), torch.tensor([[[[1.0]], [[0.0]]]]))
        {'activation_density': 0.25, 'weight_density': 0.5, 'empty_share': 0.5, 'dead_share': 0.5}
    """
    maps, present = inputs != 0, weight != 0
    return {
        "activation_density": int(maps.count_nonzero()) / maps.numel(),
        "weight_density": int(present.count_nonzero()) / present.numel(),
        "empty_share": 1.0 - float(present.any(dim=0).flatten(1).any(dim=1).float().mean()),
        "dead_share": 1.0 - float(maps.flatten(2).any(dim=2).float().mean()),
    }


def reduced_times(seconds: float, share: Mapping[str, float]) -> dict[str, float]:
    """The time of a dense convolution, scaled by each estimate."""
    a, w = share["activation_density"], share["weight_density"]
    channels = 1 - share["empty_share"]
    return {
        "dense": seconds,
        "weights": seconds * w,
        "activations": seconds * a,
        "both": seconds * a * w,
        "empty_channels": seconds * channels,
        "empty_channels_dead_maps": seconds * channels * (1 - share["dead_share"]),
    }


class SpeedupRecorder:
    """Measures every training pass of a model's convolutions; evaluation passes are left alone.

    Args:
        model: the network, before any wrapping.
        segment: passes per average.
        rerun: time a dense convolution of its own instead of the module's forward, for layers that are computed otherwise.
        clock: seconds; the default waits for a GPU.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False))
        >>> with SpeedupRecorder(model) as recorder:
        ...     _ = model(torch.ones(2, 1, 4, 4))
        >>> recorder.speedups()["both"]
        1.0
    """

    def __init__(
        self, model: nn.Module, segment: int = SEGMENT, rerun: bool = False, clock: Callable[[], float] | None = None
    ) -> None:
        self.model, self.segment, self.rerun = model, segment, rerun
        self.segments: list[dict[str, Any]] = []
        self.passes = 0
        self._sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._began: dict[str, float] = {}
        self._clock = clock or _clock_of(model)
        self._hooks: list[Any] = []

    def __enter__(self) -> SpeedupRecorder:
        """Attach to every convolution that is not a shortcut."""
        self._hooks = [self.model.register_forward_hook(self._count)]
        for name, module in convolutions(self.model):
            self._hooks.append(module.register_forward_pre_hook(self._start(name)))
            self._hooks.append(module.register_forward_hook(self._stop(name), prepend=True))
        return self

    def __exit__(self, *_: object) -> None:
        """Detach; the measurements stay."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def rows(self) -> list[dict[str, Any]]:
        """Finished segments, and the unfinished one with the passes it has."""
        return [*self.segments, self._average()] if self.passes else list(self.segments)

    def speedups(self) -> dict[str, float | None]:
        """Every estimate over the whole run; None where all reduced time is zero."""
        return speedups(self.rows())

    def state(self) -> dict[str, Any]:
        """Plain numbers to continue from."""
        return {
            "segments": self.segments,
            "passes": self.passes,
            "sums": {name: dict(values) for name, values in self._sums.items()},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.segments, self.passes = list(state["segments"]), int(state["passes"])
        self._sums.clear()
        for name, values in state["sums"].items():
            self._sums[name] = defaultdict(float, values)

    def _start(self, name: str) -> Callable[..., None]:
        def begin(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if module.training:
                self._began[name] = self._clock()

        return begin

    def _stop(self, name: str) -> Callable[..., None]:
        def end(module: nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            if not module.training:
                return
            seconds = self._clock() - self._began.pop(name)
            if self.rerun:
                seconds = self._dense_seconds(module, inputs[0])
            share = shares(inputs[0], module.weight)
            for key, value in (*reduced_times(seconds, share).items(), *share.items()):
                self._sums[name][key] += value
            self._sums[name]["calls"] += 1

        return end

    @torch.no_grad()
    def _dense_seconds(self, module: nn.Conv2d, inputs: Tensor) -> float:
        began = self._clock()
        nn.Conv2d._conv_forward(module, inputs, module.weight, module.bias)
        return self._clock() - began

    def _count(self, *_: object) -> None:
        if not self.model.training:
            return
        self.passes += 1
        if self.passes == self.segment:
            self.segments.append(self._average())
            self._sums.clear()
            self.passes = 0

    def _average(self) -> dict[str, Any]:
        return {"passes": self.passes, "layers": {name: self._means(sums) for name, sums in self._sums.items()}}

    def _means(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Times per pass, shares per call: a layer that is called twice in a pass costs twice."""
        times = {key: sums[key] / self.passes for key in ("dense", *ESTIMATES)}
        return {**times, **{key: sums[key] / sums["calls"] for key in _SHARES}}


def speedups(rows: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Sum of dense times over sum of reduced times; a segment counts by its passes, so that full ones count alike."""
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        for layer in row["layers"].values():
            for key in ("dense", *ESTIMATES):
                totals[key] += row["passes"] * layer[key]
    return {key: totals["dense"] / totals[key] if totals[key] > 0 else None for key in ESTIMATES}


def convolutions(model: nn.Module) -> list[tuple[str, nn.Conv2d]]:
    """The measured layers by name: every 2-d convolution but projections of shortcuts."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    return [(name, module) for name, module in found if not is_shortcut(name, module.weight.shape)]


def _clock_of(model: nn.Module) -> Callable[[], float]:
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return time.perf_counter

    def synchronised() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return synchronised
