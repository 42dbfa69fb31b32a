"""Single layers, forward + backward: dense NCHW and channels_last (the faster counts) against sparse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from regrow.bench.timing import medians
from regrow.execution import SparsePattern, passes
from regrow.execution.layers import window_of
from regrow.execution.layout import to_travel


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
        window = f"{self.kernel}x{self.kernel}/{self.stride}"
        return f"conv {window} {self.inputs}->{self.outputs}@{self.size} batch {self.batch}"

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
    LayerSpec(784, 300, batch=100),
    LayerSpec(4096, 4096),
    LayerSpec(4096, 4096, batch=2048),
)


@dataclass(frozen=True)
class LayerResult:
    """One row: milliseconds of forward + backward; `useful_gflops` counts present weights only."""

    layer: str
    density: float
    dense_ms: float
    dense_setting: str
    sparse_ms: float
    forward_ms: float
    input_gradient_ms: float
    weight_gradient_ms: float
    ratio: float
    useful_gflops: float

    def record(self) -> dict[str, object]:
        """As plain data."""
        return asdict(self)


def _dense_candidates(spec: LayerSpec, module: nn.Module, x: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """Forward + both gradients by torch's operators, in each dense setting."""
    w = module.weight.detach()
    if not spec.size:
        xt, gt = x.t().contiguous(), grad.t().contiguous()
        return {
            "dense (samples, features)": lambda: (nn.functional.linear(x, w), grad @ w, grad.t() @ x),
            "dense (features, samples)": lambda: (w @ xt, w.t() @ gt, gt @ xt.t()),
        }
    stride, pad = list(module.stride), list(module.padding)

    def setting(x: Tensor, w: Tensor, grad: Tensor) -> Callable[[], object]:
        arguments = (None, stride, pad, [1, 1], False, [0, 0], 1, [True, True, False])
        return lambda: (
            torch.conv2d(x, w, None, stride, pad),
            torch.ops.aten.convolution_backward(grad, x, w, *arguments),
        )

    channels_last = (t.contiguous(memory_format=torch.channels_last) for t in (x, w, grad))
    return {"dense NCHW": setting(x, w, grad), "dense channels_last": setting(*channels_last)}


def _sparse_candidates(
    module: nn.Module, x: Tensor, grad: Tensor, pattern: SparsePattern
) -> dict[str, Callable[[], object]]:
    w, out = module.weight.detach(), torch.zeros_like(module.weight)
    x, grad = to_travel(x), to_travel(grad)
    present = passes.forward(x, w, None, pattern)[1]
    return {
        "forward": lambda: passes.forward(x, w, None, pattern),
        "input_gradient": lambda: passes.input_gradient(grad, present, pattern, *passes.map_size(x)),
        "weight_gradient": lambda: passes.weight_gradient(out, x, grad, pattern),
    }


def measure(spec: LayerSpec, density: float, rounds: int = 9, clock: str = "wall") -> LayerResult:
    """One row of the table."""
    torch.manual_seed(0)
    module, x = spec.module(), spec.input()
    mask = torch.rand(module.weight.shape) < density
    with torch.no_grad():
        module.weight.mul_(mask)
        y = module(x)
    grad = torch.randn(y.shape)
    pattern = SparsePattern(mask, window_of(module))
    dense = _dense_candidates(spec, module, x, grad)
    sparse = _sparse_candidates(module, x, grad, pattern)
    seconds = medians({**dense, **sparse}, rounds, clock)
    best = min(dense, key=seconds.__getitem__)
    total = sum(seconds[name] for name in sparse)
    pixels = y.shape[2] * y.shape[3] if y.dim() == 4 else 1
    return LayerResult(
        layer=spec.name,
        density=density,
        dense_ms=1e3 * seconds[best],
        dense_setting=best,
        sparse_ms=1e3 * total,
        forward_ms=1e3 * seconds["forward"],
        input_gradient_ms=1e3 * seconds["input_gradient"],
        weight_gradient_ms=1e3 * seconds["weight_gradient"],
        ratio=seconds[best] / total,
        useful_gflops=6e-9 * pattern.nnz * spec.batch * pixels / total,
    )


def measure_all(
    densities: Sequence[float], layers: Sequence[LayerSpec] = LAYERS, rounds: int = 9, clock: str = "wall"
) -> Iterator[LayerResult]:
    """All rows, as they are measured."""
    for spec in layers:
        for density in densities:
            yield measure(spec, density, rounds, clock)
