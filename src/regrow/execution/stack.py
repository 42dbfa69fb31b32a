"""Sparse linear layers one after the other, ReLUs between them: one node of the autograd graph, one native call each way.

Layers of a few thousand weights take less time than torch needs to dispatch them; numbers are those of the layers one by one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from regrow.execution import native
from regrow.execution.gradient import dense_weight_gradient, watched
from regrow.execution.layers import Execution, SparseLinear, execution_of
from regrow.execution.layout import empty_travel, to_travel
from regrow.execution.pattern import SparsePattern

_POINTERS, _COUNTS = ctypes.c_void_p, ctypes.c_int64


class _Layer(ctypes.Structure):
    """`StackLayer` of csrc/stack.h."""

    _fields_ = [
        *((name, _POINTERS) for name in ("plan", "input_plan", "gradient_plan", "position", "gradient_position")),
        *((name, _COUNTS) for name in ("count", "gradient_count", "outputs")),
        *((name, _POINTERS) for name in ("weight", "bias", "present", "y", "dx", "dw", "dbias")),
    ]


def length(modules: Sequence[nn.Module], x: Tensor) -> int:
    """How many of the modules, from the first on, make a stack for `x`; 0 if fewer than two layers do."""
    if type(modules[0]) is not SparseLinear or x.dim() != 2 or torch.compiler.is_compiling() or watched():
        return 0
    layers = 0
    while _fits(modules[2 * layers], x.dtype):
        layers += 1
        if 2 * layers >= len(modules) or type(modules[2 * layers - 1]) is not nn.ReLU:
            break
    return 2 * layers - 1 if layers > 1 and x.numel() else 0


def _fits(module: nn.Module, dtype: torch.dtype) -> bool:
    if type(module) is not SparseLinear:
        return False
    weight, execution = module._parameters["weight"], execution_of(module)
    return execution.live and weight.dtype == dtype and weight.is_contiguous()


def compute(modules: Sequence[nn.Module], x: Tensor) -> Tensor:
    """The output of a stack: every other module is a layer."""
    layers = modules[::2]
    if x.shape[1] != layers[0].in_features:
        raise ValueError(f"input has shape {tuple(x.shape)}, expected (..., {layers[0].in_features})")
    tensors = [layer._parameters[name] for layer in layers for name in ("weight", "bias")]
    return _StackFunction.apply(x, [execution_of(layer) for layer in layers], *tensors)


class _Memory:
    """One allocation for several arrays, each from a cache line's start on."""

    def __init__(self, like: Tensor, sizes: Sequence[int]) -> None:
        self._starts = list(accumulate((-(-size // 16) * 16 for size in sizes), initial=0))
        self._memory = like.new_empty(self._starts[-1])
        base, size = self._memory.data_ptr(), self._memory.element_size()
        self.pointers = [base + start * size for start in self._starts]

    def features(self, index: int, samples: int, features: int) -> Tensor:
        """An array as travelling (samples, features)."""
        return self._memory.narrow(0, self._starts[index], samples * features).view(features, samples).t()


def _template(pattern: SparsePattern, wants_input: bool) -> _Layer:
    """A layer's record with its lists, made once per mask: looking them up costs as much as computing with them."""
    if (found := pattern.derived.get((_Layer, wants_input))) is not None:
        return found
    layer, positions, reached = _Layer(), pattern.positions(), pattern.positions("weight_gradient")
    layer.plan, layer.gradient_plan = pattern.plan("forward", 1, 1), pattern.plan("weight_gradient", 1, 1)
    layer.input_plan = pattern.plan("input_gradient", 1, 1) if wants_input else None
    layer.position, layer.count = positions.data_ptr(), positions.numel()
    layer.gradient_position, layer.gradient_count = reached.data_ptr(), reached.numel()
    layer.outputs = pattern.out_channels
    pattern.derived[_Layer, wants_input] = layer
    return layer


class _StackFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, executions: list[Execution], *tensors: Tensor | None) -> Tensor:
        """The last layer's output."""
        x, patterns, samples = to_travel(x), [execution.pattern for execution in executions], x.shape[0]
        y = empty_travel((samples, patterns[-1].out_channels), x)
        values = _Memory(x, [pattern.nnz for pattern in patterns])
        maps = _Memory(x, [samples * pattern.out_channels for pattern in patterns[:-1]])
        layers = (_Layer * len(patterns))()
        for i, pattern in enumerate(patterns):
            layers[i] = _template(pattern, i > 0 or ctx.needs_input_grad[0])
            layer, bias = layers[i], tensors[2 * i + 1]
            layer.weight, layer.bias = tensors[2 * i].data_ptr(), None if bias is None else bias.data_ptr()
            layer.present, layer.y = values.pointers[i], maps.pointers[i]
        layers[-1].y = y.data_ptr()
        native.call("stack_forward", x.dtype, layers, len(layers), x, samples)
        ctx.save_for_backward(x, *tensors[::2])
        ctx.layers, ctx.executions, ctx.values, ctx.maps = layers, executions, values, maps
        ctx.masks, ctx.dense = [pattern.mask for pattern in patterns], [execution.dense for execution in executions]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the input, and of each layer's weight and bias."""
        x, *weights = ctx.saved_tensors
        grad, wanted, samples = to_travel(grad), ctx.needs_input_grad, x.shape[0]
        dx = empty_travel(x.shape, x) if wanted[0] else None
        inner = _Memory(x, [samples * execution.pattern.in_channels for execution in ctx.executions[1:]])
        found: list[Tensor | None] = []
        for i, execution in enumerate(ctx.executions):
            if execution.pattern.mask is not ctx.masks[i]:
                raise RuntimeError("the masks changed between forward and backward: run the forward pass again")
            layer = ctx.layers[i]
            dw = execution.buffer.lend(weights[i]) if wanted[2 + 2 * i] and not ctx.dense[i] else None
            db = x.new_empty(layer.outputs) if wanted[3 + 2 * i] else None
            layer.dw, layer.dbias = (None if tensor is None else tensor.data_ptr() for tensor in (dw, db))
            layer.dx = inner.pointers[i - 1] if i else None if dx is None else dx.data_ptr()
            found += [dw, db]
        native.call("stack_backward", x.dtype, ctx.layers, len(ctx.layers), x, grad, samples)
        for i, execution in enumerate(ctx.executions):
            if found[2 * i] is not None:
                execution.buffer.written()
            elif wanted[2 + 2 * i]:
                found[2 * i] = _dense_gradient(ctx, inner, i, x, grad)
        return dx, None, *found


def _dense_gradient(ctx: FunctionCtx, inner: _Memory, i: int, x: Tensor, grad: Tensor) -> Tensor:
    """The whole weight gradient of layer i, in a growth window."""
    pattern, samples = ctx.executions[i].pattern, x.shape[0]
    source = x if i == 0 else ctx.maps.features(i - 1, samples, pattern.in_channels)
    last = i + 1 == len(ctx.executions)
    arrived = grad if last else inner.features(i, samples, pattern.out_channels)
    return dense_weight_gradient(source, arrived, pattern)
