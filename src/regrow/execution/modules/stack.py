"""Sparse linear layers one after the other, ReLUs between them: one node of the autograd graph, one native call each way.

Layers of a few thousand weights take less time than torch needs to dispatch them; numbers are those of the layers one by one, but for
rounding in the dense weight gradients of a growth window.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol, TypeGuard, cast

import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.compact import Witness
from regrow.execution.kernels.context import Context, keep_origin, once_differentiable
from regrow.execution.kernels.gradient import GradientBuffer, watched, whole_weight_gradient
from regrow.execution.kernels.layout import empty_chwn, empty_vector, in_rows, to_chwn, to_ordinary
from regrow.execution.kernels.pattern import KernelPlan, SparsePattern
from regrow.execution.modules.compact import compact_class
from regrow.execution.modules.layers import Execution, SparseLinear, execution_of
from regrow.native.records import StackLayer
from regrow.vectors import still

_LINE = 16  # numbers in a cache line, at least
_LARGE = 1 << 22  # numbers in an output that torch's own layers are slow with in CHWN: it leaves as the input came
_LINEAR = (SparseLinear, compact_class(SparseLinear))


def length(modules: Sequence[nn.Module], x: Tensor) -> int:
    """How many of the modules, from the first on, make a stack for `x`; 0 if fewer than two layers do."""
    if type(modules[0]) not in _LINEAR or x.dim() != 2 or not native.reads(x) or watched():
        return 0
    layers, features = 0, x.shape[1]
    while _fits(layer := modules[2 * layers], x.dtype, features):
        features = layer.out_features
        layers += 1
        if 2 * layers >= len(modules) or type(modules[2 * layers - 1]) is not nn.ReLU:
            break
    return 2 * layers - 1 if layers > 1 and x.numel() else 0


def _fits(module: nn.Module, dtype: torch.dtype, features: int) -> TypeGuard[SparseLinear]:
    """Whether a module can take so many features natively; one that cannot for their number says so when it is called by itself."""
    if type(module) not in _LINEAR:
        return False
    weight, bias, execution = module._parameters["weight"], module._parameters["bias"], execution_of(module)
    if weight is None or execution is None:
        return False
    support = execution.pattern.support
    plain = weight.dtype == dtype and weight.is_contiguous() and weight.is_cpu and support.shape[1] == features
    plain = plain and (
        bias is None or (bias.dtype == dtype and bias.shape == support.shape[:1] and bias.is_contiguous())
    )
    stored = (support.nnz,) if support.is_compact else support.shape
    return plain and execution.applies(weight) and weight.shape == stored


def compute(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    """The output of a stack: every other module is a layer."""
    layers = modules[::2]
    tensors = [layer._parameters[name] for layer in layers for name in ("weight", "bias")]
    with still():
        return _StackFunction.apply(x, [execution_of(layer) for layer in layers], *tensors)


class _Outline:
    """What is the same in every pass of a stack while its supports last: looking it up costs as much as computing with it.

    A pass has one piece of memory for what it keeps: ``present`` weights and outputs ``y`` of the layers from the forward on, input
    gradients ``dx`` in the backward, each from a cache line's start on.
    """

    def __init__(self, patterns: list[SparsePattern], samples: int, wants_input: bool, dtype: torch.dtype) -> None:
        self.samples = samples
        # Supports, not patterns: the first pattern keeps this outline, and a circle would outlive its use.
        self.supports = [(pattern.support, pattern.reach) for pattern in patterns]
        self.layers = (StackLayer * len(patterns))()
        self._lists = [_enter_lists(self.layers[i], p, wants_input or i > 0, dtype) for i, p in enumerate(patterns)]
        self.present = _places([0 if p.support.is_compact else p.support.nnz for p in patterns])
        maps = [samples * pattern.out_channels for pattern in patterns[:-1]]
        self.y = _places(maps, self.present[-1])
        self.dx = _places(maps)

    def fits(self, patterns: list[SparsePattern], samples: int) -> bool:
        """Whether supports and batch are still those."""
        return samples == self.samples and all(
            pattern.support is support and pattern.reach is reach
            for pattern, (support, reach) in zip(patterns, self.supports, strict=True)
        )

    def records(self, memory: Tensor, weights: Sequence[Tensor]) -> ctypes.Array[StackLayer]:
        """The layers' records for one pass with this memory: of its own, as a kept graph may be walked by two threads."""
        layers = type(self.layers).from_buffer_copy(self.layers)
        base, size = memory.data_ptr(), memory.element_size()
        for layer, weight, present, out in zip(layers, weights, self.present, self.y, strict=False):
            layer.weight, layer.y = native.address(weight), base + out * size
            layer.present = base + present * size if layer.position else layer.weight
        return layers

    def features(self, memory: Tensor, start: int, i: int) -> Tensor:
        """An array of layer i's size as CHWN (samples, features)."""
        features = self.supports[i][0].shape[0]
        return memory.narrow(0, start, self.samples * features).view(features, self.samples).t()


def _enter_lists(
    layer: StackLayer, pattern: SparsePattern, wants_input: bool, dtype: torch.dtype
) -> list[KernelPlan | Tensor]:
    """Point a layer's record to its lists; returns what must live as long."""
    plans = {"plan": "forward", "gradient_plan": "weight_gradient", "input_plan": "input_gradient"}
    found = {
        name: pattern.plan(use, 1, 1, dtype, samples=0)
        for name, use in plans.items()
        if wants_input or use != "input_gradient"
    }
    for name, plan in found.items():
        setattr(layer, name, plan.pointer)
    layer.count, layer.gradient_count, layer.outputs = pattern.support.nnz, pattern.reached.nnz, pattern.out_channels
    if pattern.support.is_compact:
        return [*found.values()]
    present, reached = pattern.support.positions, pattern.reached.positions
    layer.position, layer.gradient_position = present.data_ptr(), reached.data_ptr()
    return [*found.values(), present, reached]


def _places(sizes: Sequence[int], start: int = 0) -> list[int]:
    """Where arrays of these sizes start, and the last one ends."""
    return list(accumulate((-(-size // _LINE) * _LINE for size in sizes), initial=start))


def _outline(patterns: list[SparsePattern], samples: int, wants_input: bool, dtype: torch.dtype) -> _Outline:
    kept, key = patterns[0].kept, (_Outline, len(patterns), wants_input, dtype)
    if (found := kept.get(key)) is None or not found.fits(patterns, samples):
        found = kept[key] = _Outline(patterns, samples, wants_input, dtype)
    return found


class _StackContext(Context, Protocol):
    saved_tensors: tuple[Tensor, ...]
    patterns: list[SparsePattern]
    buffers: list[GradientBuffer]
    outline: _Outline
    dense: list[bool]
    witnesses: list[Witness | None]


class _StackFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _StackContext, x: Tensor, executions: list[Execution], *tensors: Tensor | None) -> Tensor:
        """The last layer's output."""
        given, x = x, to_chwn(x)
        samples, weights = x.shape[0], cast(Sequence[Tensor], tensors[::2])  # a bias may be missing
        # Once: another thread may update the topology meanwhile.
        patterns = [execution.pattern for execution in executions]
        outline = _outline(patterns, samples, ctx.needs_input_grad[0], x.dtype)
        y, memory = empty_chwn((samples, patterns[-1].out_channels), x), empty_vector(outline.y[-1], x)
        layers = outline.records(memory, weights)
        for layer, bias in zip(layers, tensors[1::2], strict=True):
            layer.bias = None if bias is None else native.address(bias)
        layers[-1].y = y.data_ptr()
        native.call("stack_forward", x.dtype, layers, len(layers), x, samples)
        ctx.save_for_backward(x, memory, *weights)
        keep_origin(ctx, given, x)
        ctx.patterns, ctx.outline = patterns, outline
        ctx.buffers = [execution.buffer for execution in executions]
        ctx.dense = [execution.dense for execution in executions]
        ctx.witnesses = [execution.witness for execution in executions]
        return to_ordinary(y) if y.numel() >= _LARGE and in_rows(given) else y

    @staticmethod
    @once_differentiable
    @still()
    def backward(ctx: _StackContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the input, and of each layer's weight and bias."""
        x, memory, *weights = ctx.saved_tensors
        grad, wanted, outline = to_chwn(grad), ctx.needs_input_grad, ctx.outline
        layers = outline.records(memory, weights)
        dx, inner = empty_chwn(x.shape, x) if wanted[0] else None, empty_vector(outline.dx[-1], x)
        base, size = inner.data_ptr(), inner.element_size()
        found: list[Tensor | None] = []
        for i, (layer, pattern, buffer) in enumerate(zip(layers, ctx.patterns, ctx.buffers, strict=True)):
            lends = wanted[2 + 2 * i] and not (ctx.witnesses[i] if pattern.support.is_compact else ctx.dense[i])
            dw = _lent(buffer, weights[i], pattern) if lends else None
            db = x.new_empty(layer.outputs) if wanted[3 + 2 * i] else None
            layer.dw, layer.dbias = None if dw is None else dw.data_ptr(), None if db is None else db.data_ptr()
            layer.dx = base + outline.dx[i - 1] * size if i else None if dx is None else dx.data_ptr()
            found += (dw, db)
        native.call("stack_backward", x.dtype, layers, len(layers), x, grad, outline.samples)
        for i, pattern in enumerate(ctx.patterns):
            if found[2 * i] is None and wanted[2 + 2 * i]:
                source = x if i == 0 else outline.features(memory, outline.y[i - 1], i - 1)
                arrived = grad if i + 1 == len(layers) else outline.features(inner, outline.dx[i], i)
                found[2 * i] = _whole(ctx.witnesses[i], source, arrived, pattern)
        return dx, None, *found


def _lent(buffer: GradientBuffer, weight: Tensor, pattern: SparsePattern) -> Tensor:
    return empty_vector(weight.numel(), weight) if pattern.support.is_compact else buffer.lend(weight, pattern.reached)


def _whole(witness: Witness | None, x: Tensor, grad: Tensor, pattern: SparsePattern) -> Tensor:
    return whole_weight_gradient(x, grad, pattern) if witness is None else witness(x, grad, pattern)
