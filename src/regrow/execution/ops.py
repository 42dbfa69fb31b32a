"""torch operators of sparse layers (namespace `regrow`): the passes for tracing, compilation, export and FLOP counting.

y  = sparse_forward(x, weight, bias, support, reach, shape, window, dense)
dx = sparse_input_gradient(grad, weight, support, shape, window, rows, cols)
dW = sparse_weight_gradient(x, grad, reach, shape, window)      of dense shape, zero outside `reach`

Tensors as in `passes`. `support` and `reach` (where weight gradients are computed; None: as `support`) are `Support.bits` of a weight of
`shape`, `window` the numbers of a `Window`. So a program holds all it needs: a topology update needs no recompilation, and an exported
program can be loaded elsewhere, after `import regrow.execution`. After a `dense` forward pass, inside a growth window, autograd computes
the full dW.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from regrow.execution import passes
from regrow.execution.gradient import dense_weight_gradient
from regrow.execution.layout import empty_as
from regrow.execution.operand import refuse_outside, support_of
from regrow.execution.pattern import SparsePattern, Window

Numbers = list[int]

_library = torch.library.Library("regrow", "DEF")
_LAYER = "int[] shape, int[] window"
_library.define(
    f"sparse_forward(Tensor x, Tensor weight, Tensor? bias, Tensor support, Tensor? reach, {_LAYER}, bool dense=False) -> Tensor"
)
_library.define(
    f"sparse_input_gradient(Tensor grad, Tensor weight, Tensor support, {_LAYER}, SymInt rows, SymInt cols) -> Tensor"
)
_library.define(f"sparse_weight_gradient(Tensor x, Tensor grad, Tensor reach, {_LAYER}) -> Tensor")
_library.define(f"sparse_weight_gradient_(Tensor(a!) out, Tensor x, Tensor grad, Tensor reach, {_LAYER}) -> ()")


def _pattern(support: Tensor, shape: Numbers, window: Numbers) -> SparsePattern:
    return SparsePattern(support_of(support, shape), Window.from_numbers(window))


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    support: Tensor,
    reach: Tensor | None,
    shape: Numbers,
    window: Numbers,
    dense: bool = False,
) -> Tensor:
    refuse_outside(weight)
    return passes.forward(x, weight, bias, _pattern(support, shape, window))[0]


def _input_gradient(
    grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, window: Numbers, rows: int, cols: int
) -> Tensor:
    return passes.input_gradient(grad, weight, _pattern(support, shape, window), rows, cols)


def _weight_gradient_(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, window: Numbers) -> None:
    passes.weight_gradient(out, x, grad, _pattern(reach, shape, window))


def _weight_gradient(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, window: Numbers) -> Tensor:
    pattern = _pattern(reach, shape, window)  # checks the shape before memory is taken
    out = x.new_zeros(shape)
    passes.weight_gradient(out, x, grad, pattern)
    return out


_library.impl("sparse_forward", _forward, "CPU")
_library.impl("sparse_input_gradient", _input_gradient, "CPU")
_library.impl("sparse_weight_gradient", _weight_gradient, "CPU")
_library.impl("sparse_weight_gradient_", _weight_gradient_, "CPU")


@torch.library.register_fake("regrow::sparse_forward", lib=_library)
def _(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    support: Tensor,
    reach: Tensor | None,
    shape: Numbers,
    window: Numbers,
    dense: bool = False,
) -> Tensor:
    return empty_as(passes.output_shape(x, shape[0], Window.from_numbers(window)), x)


@torch.library.register_fake("regrow::sparse_input_gradient", lib=_library)
def _(grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, window: Numbers, rows: int, cols: int) -> Tensor:
    channels = shape[1] * Window.from_numbers(window).groups
    return empty_as(passes.input_shape(grad, channels, rows, cols), grad)


@torch.library.register_fake("regrow::sparse_weight_gradient", lib=_library)
def _(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, window: Numbers) -> Tensor:
    return x.new_empty(shape)


@torch.library.register_fake("regrow::sparse_weight_gradient_", lib=_library)
def _(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, window: Numbers) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, weight, bias, support, reach, ctx.shape, ctx.window, ctx.dense = inputs
    ctx.save_for_backward(x, weight, support, support if reach is None else reach)
    ctx.has_bias = bias is not None


def _backward(ctx: Any, grad: Tensor) -> tuple:
    x, weight, support, reach = ctx.saved_tensors
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    layer = (list(ctx.shape), list(ctx.window))
    dx = dw = None
    if need_x:
        dx = torch.ops.regrow.sparse_input_gradient(grad, weight, support, *layer, *passes.map_size(x))
    if need_weight and ctx.dense:
        dw = dense_weight_gradient(x, grad, torch.Size(ctx.shape), Window.from_numbers(ctx.window))
    elif need_weight:
        dw = torch.ops.regrow.sparse_weight_gradient(x, grad, reach, *layer)
    db = passes.bias_gradient(grad) if ctx.has_bias and need_bias else None
    return dx, dw, db, None, None, None, None, None


torch.library.register_autograd("regrow::sparse_forward", _backward, setup_context=_setup_context, lib=_library)


def _flops(support: Tensor, shape: Numbers, output: Any) -> int:
    """Two per present weight, sample and output pixel."""
    return 2 * support_of(support, shape).nnz * math.prod(output) // output[1]


@register_flop_formula(torch.ops.regrow.sparse_forward, get_raw=True)
def _(
    x: Tensor,
    weight: Tensor,
    bias: Any,
    support: Tensor,
    reach: Any,
    shape: Numbers,
    window: Numbers,
    *args: Any,
    **kwargs: Any,
) -> int:
    return _flops(support, shape, passes.output_shape(x, shape[0], Window.from_numbers(window)))


@register_flop_formula(torch.ops.regrow.sparse_input_gradient, get_raw=True)
def _(grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(support, shape, grad.shape)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient, get_raw=True)
def _(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(reach, shape, grad.shape)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient_, get_raw=True)
def _(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(reach, shape, grad.shape)
