"""Single layers, forward + backward: dense (NCHW, channels_last, compiled; the fastest counts) against masked and sparse."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regrow.bench.arms import SparseArm, stored
from regrow.bench.compiled import compiled
from regrow.bench.memory import peak_mb
from regrow.bench.timing import quartiles, samples
from regrow.execution import SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.kernels.layout import to_chwn
from regrow.execution.modules.geometry import geometry_of
from regrow.marks import count_of


@dataclass(frozen=True)
class LayerSpec:
    """A layer to measure: `size` is the map's side, 0 for a Linear."""

    inputs: int
    outputs: int
    size: int = 0
    kernel: int = 3
    stride: int = 1
    batch: int = 128

    @property
    def name(self) -> str:
        """Readable name."""
        if not self.size:
            return f"linear {self.inputs}->{self.outputs} batch {self.batch}"
        geometry = f"{self.kernel}x{self.kernel}/{self.stride}"
        return f"conv {geometry} {self.inputs}->{self.outputs}@{self.size} batch {self.batch}"

    def module(self) -> nn.Linear | nn.Conv2d:
        """The dense layer."""
        if not self.size:
            return nn.Linear(self.inputs, self.outputs, bias=False)
        return nn.Conv2d(self.inputs, self.outputs, self.kernel, self.stride, self.kernel // 2, bias=False)

    def input(self) -> Tensor:
        """A random batch."""
        return torch.randn(self.batch, self.inputs, *([self.size] * 2 if self.size else []))


LAYERS = (
    LayerSpec(64, 64, 32),
    LayerSpec(128, 128, 16),
    LayerSpec(256, 256, 8),
    LayerSpec(512, 512, 4),
    LayerSpec(512, 512, 2),
    LayerSpec(256, 256, 16, kernel=1),
    LayerSpec(512, 512, 8, kernel=1),
    LayerSpec(784, 300, batch=100),
    LayerSpec(4096, 4096),
    LayerSpec(4096, 4096, batch=2048),
    LayerSpec(768, 3072, batch=2048),
    LayerSpec(3072, 768, batch=2048),
)


PASSES = ("forward", "backward")
COMPACT = ("compact_forward", "compact_backward")
Candidates = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class LayerResult:
    """One row: milliseconds of forward + backward; `useful_gflops` counts present weights only. Memory is None where not measured.

    `stored_ms` is the layer as a module, through autograd, for each storage that was asked for. ``compact_*`` are our passes where
    weights and their gradients are stored as present weights alone. ``spread`` has the quartiles.
    """

    layer: str
    density: float
    dense_ms: float
    dense_setting: str
    dense_settings_ms: dict[str, float]
    compile_skipped: str
    masked_ms: float
    sparse_ms: float
    forward_ms: float
    backward_ms: float
    ratio: float
    compact_ms: float
    compact_ratio: float
    useful_gflops: float
    dense_mb: float | None = None
    sparse_mb: float | None = None
    stored_ms: dict[str, float] = field(default_factory=dict)
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


@dataclass
class Case:
    """A layer with data: what all candidates share."""

    spec: LayerSpec
    density: float

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.module, self.x = self.spec.module(), self.spec.input()
        self.mask = torch.rand(self.module.weight.shape) < self.density
        with torch.no_grad():
            self.module.weight.mul_(self.mask)
            self.grad = torch.randn(self.module(self.x).shape)
        self.weight = self.module.weight.detach()

    def dense_function(self) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]:
        """Output, input gradient and weight gradient from (x, weight, grad) by torch's operators."""
        if not self.spec.size:
            return lambda x, w, g: (nn.functional.linear(x, w), g @ w, g.t() @ x)
        geometry = geometry_of(self.module)
        stride, pad = list(geometry.stride), list(geometry.padding[:2])
        rest = (None, stride, pad, [1, 1], False, [0, 0], 1, [True, True, False])
        backward = torch.ops.aten.convolution_backward
        return lambda x, w, g: (torch.conv2d(x, w, None, stride, pad), *backward(g, x, w, *rest)[:2])

    def settings(self) -> dict[str, tuple[Tensor, ...]]:
        """The tensors in the memory order of each dense setting."""
        plain = (self.x, self.weight, self.grad)
        if not self.spec.size:
            return {"dense (samples, features)": plain}
        last = tuple(tensor.contiguous(memory_format=torch.channels_last) for tensor in plain)
        return {"dense NCHW": plain, "dense channels_last": last}

    def transposed(self) -> Callable[[], object]:
        """A linear layer on (features, samples), which is faster than torch's own order for large ones."""
        x, w, grad = self.x.t().contiguous(), self.weight, self.grad.t().contiguous()
        return lambda: (w @ x, w.t() @ grad, grad @ x.t())

    def masked(self) -> Callable[[], object]:
        """Dense work on masked weights, and the mask on the weight gradient, as `masked` execution does it."""
        function, tensors = self.dense_function(), list(self.settings().values())[-1]
        mask = self.mask.to(self.weight.dtype)
        return lambda: function(*tensors)[2].mul_(mask)

    def sparse(self) -> Candidates:
        """Both passes on native kernels as autograd calls them: maps in CHWN, features as torch has them.

        And both with weights and gradients of present weights alone, as compact storage has them.
        """
        pattern = SparsePattern(self.mask, geometry_of(self.module))
        arrange = to_chwn if self.spec.size else torch.Tensor.contiguous
        w, out, x, grad = self.weight, torch.zeros_like(self.weight), arrange(self.x), arrange(self.grad)
        present = passes.forward(x, w, None, pattern)[1]
        few = torch.zeros_like(present)
        return {
            "forward": lambda: passes.forward(x, w, None, pattern),
            "backward": lambda: passes.backward(x, grad, present, pattern, out),
            "compact_forward": lambda: passes.forward(x, present, None, pattern),
            "compact_backward": lambda: passes.backward(x, grad, present, pattern, few),
        }


def candidates(case: Case, names: Collection[str] | None = None) -> Candidates:
    """Everything that can be timed but the compiled setting; by name, `sparse` is both passes in a row."""
    function = case.dense_function()
    found: Candidates = {
        name: partial(function, *tensors) for name, tensors in case.settings().items() if names is None or name in names
    }
    if not case.spec.size and (names is None or "dense (features, samples)" in names):
        found["dense (features, samples)"] = case.transposed()
    if names is None or "masked" in names:
        found["masked"] = case.masked()
    if names is None or "sparse" in names:
        both = case.sparse()
        found |= both if names is None else {"sparse": lambda: [both[one]() for one in PASSES]}
    return found


def modules(case: Case, storages: Sequence[str]) -> Candidates:
    """The layer as a module on sparse kernels, forward and backward through autograd, in each storage."""
    return {f"stored {storage}": _module(case, storage) for storage in storages}


def _module(case: Case, storage: str) -> Callable[[], object]:
    x = case.x.clone().requires_grad_()
    model = nn.Sequential(copy.deepcopy(case.module))
    arm = stored(model, x, x, {"0": case.mask}, "sparse", True, storage)

    def passes() -> SparseArm:
        x.grad = None
        for parameter in model.parameters():
            parameter.grad = None
        model(x).backward(case.grad)
        return arm  # which the optimizer's hooks live with

    return passes


def _compiled(case: Case) -> tuple[Candidates, str]:
    tensors = list(case.settings().values())[-1]
    function, reason = compiled(case.dense_function(), lambda candidate: candidate(*tensors))
    return ({} if function is None else {"dense compiled": lambda: function(*tensors)}), reason


def measure(
    spec: LayerSpec,
    density: float,
    repeats: int = 9,
    *,
    compile: bool = True,
    memory: bool = False,
    storages: Sequence[str] = (),
) -> LayerResult:
    """One row of the table."""
    case = Case(spec, density)
    timed = candidates(case)
    extra, reason = _compiled(case) if compile else ({}, "not asked for")
    taken = samples({**timed, **extra, **modules(case, storages)}, repeats)
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    dense = {name: value for name, value in seconds.items() if name.startswith("dense")}
    best = min(dense, key=dense.__getitem__)
    total, compact = (sum(seconds[name] for name in names) for names in (PASSES, COMPACT))
    pixels = case.grad.shape[2:].numel()
    dense_mb, sparse_mb = _memory(spec, density, best) if memory else (None, None)
    return LayerResult(
        layer=spec.name,
        density=density,
        dense_ms=1e3 * seconds[best],
        dense_setting=best,
        dense_settings_ms={name: 1e3 * value for name, value in dense.items()},
        compile_skipped=reason,
        masked_ms=1e3 * seconds["masked"],
        sparse_ms=1e3 * total,
        **{f"{name}_ms": 1e3 * seconds[name] for name in PASSES},
        ratio=seconds[best] / total,
        compact_ms=1e3 * compact,
        compact_ratio=seconds[best] / compact,
        useful_gflops=6e-9 * count_of(case.mask) * spec.batch * pixels / total,
        dense_mb=dense_mb,
        sparse_mb=sparse_mb,
        stored_ms={storage: 1e3 * seconds[f"stored {storage}"] for storage in storages},
        spread={name: quartiles([1e3 * value for value in values]) for name, values in taken.items()},
    )


def _memory(spec: LayerSpec, density: float, best: str) -> tuple[float | None, float | None]:
    uncompiled = "dense channels_last" if spec.size else "dense (samples, features)"
    eager = uncompiled if best == "dense compiled" else best
    arm = {"layer": asdict(spec), "density": density, "threads": torch.get_num_threads()}
    return peak_mb({**arm, "name": eager}), peak_mb({**arm, "name": "sparse"})
