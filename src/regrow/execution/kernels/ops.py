"""torch operators of sparse layers (namespace `regrow`): the passes for tracing, compilation, export and FLOP counting.

y  = sparse_forward(x, weight, bias, support, reach, shape, geometry, dense)
dx = sparse_input_gradient(grad, weight, support, shape, geometry, rows, cols)
dW = sparse_weight_gradient(x, grad, reach, shape, geometry)      of dense shape, zero outside `reach`

Tensors as in `passes`. `support` and `reach` (where weight gradients are computed; None: as `support`) are `Support.bits` of a weight of
`shape`, `geometry` the numbers of a `Geometry`. So a program holds all it needs: a topology update needs no recompilation, and an exported
program can be loaded elsewhere, after `import regrow.execution`. After a `dense` forward pass, inside a growth window, autograd computes
the full dW.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from regrow.execution.kernels import passes
from regrow.execution.kernels.context import refuse_twice
from regrow.execution.kernels.gradient import dense_weight_gradient
from regrow.execution.kernels.layout import empty_as
from regrow.execution.kernels.operand import refuse_outside, support_of
from regrow.execution.kernels.pattern import Geometry, SparsePattern

Numbers = list[int]

_library = torch.library.Library("regrow", "DEF")
_LAYER = "int[] shape, int[] geometry"
_library.define(
    f"sparse_forward(Tensor x, Tensor weight, Tensor? bias, Tensor support, Tensor? reach, {_LAYER}, bool dense=False) -> Tensor"
)
_library.define(
    f"sparse_input_gradient(Tensor grad, Tensor weight, Tensor support, {_LAYER}, SymInt rows, SymInt cols) -> Tensor"
)
_library.define(f"sparse_weight_gradient(Tensor x, Tensor grad, Tensor reach, {_LAYER}) -> Tensor")
_library.define(f"sparse_weight_gradient_(Tensor(a!) out, Tensor x, Tensor grad, Tensor reach, {_LAYER}) -> ()")


def _pattern(support: Tensor, shape: Numbers, geometry: Numbers) -> SparsePattern:
    return SparsePattern(support_of(support, shape), Geometry.from_numbers(geometry))


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    support: Tensor,
    reach: Tensor | None,
    shape: Numbers,
    geometry: Numbers,
    dense: bool = False,
) -> Tensor:
    refuse_outside(weight)
    return passes.forward(x, weight, bias, _pattern(support, shape, geometry))[0]


def _input_gradient(
    grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, geometry: Numbers, rows: int, cols: int
) -> Tensor:
    return passes.input_gradient(grad, weight, _pattern(support, shape, geometry), rows, cols)


def _weight_gradient_(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, geometry: Numbers) -> None:
    passes.weight_gradient(out, x, grad, _pattern(reach, shape, geometry))


def _weight_gradient(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, geometry: Numbers) -> Tensor:
    pattern = _pattern(reach, shape, geometry)  # checks the shape before memory is taken
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
    geometry: Numbers,
    dense: bool = False,
) -> Tensor:
    return empty_as(passes.output_shape(x, shape[0], Geometry.from_numbers(geometry)), x)


@torch.library.register_fake("regrow::sparse_input_gradient", lib=_library)
def _(grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, geometry: Numbers, rows: int, cols: int) -> Tensor:
    channels = shape[1] * Geometry.from_numbers(geometry).groups
    return empty_as(passes.input_shape(grad, channels, rows, cols), grad)


@torch.library.register_fake("regrow::sparse_weight_gradient", lib=_library)
def _(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, geometry: Numbers) -> Tensor:
    return x.new_empty(shape)


@torch.library.register_fake("regrow::sparse_weight_gradient_", lib=_library)
def _(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, geometry: Numbers) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, weight, bias, support, reach, ctx.shape, ctx.geometry, ctx.dense = inputs
    ctx.save_for_backward(x, weight, support, support if reach is None else reach)
    ctx.has_bias = bias is not None


def _backward(ctx: Any, grad: Tensor) -> tuple:
    x, weight, support, reach = ctx.saved_tensors
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    layer = (list(ctx.shape), list(ctx.geometry))
    dx = dw = None
    if need_x:
        dx = torch.ops.regrow.sparse_input_gradient(grad, weight, support, *layer, *passes.map_size(x))
    if need_weight and ctx.dense:
        dw = dense_weight_gradient(x, grad, torch.Size(ctx.shape), Geometry.from_numbers(ctx.geometry))
    elif need_weight:
        dw = torch.ops.regrow.sparse_weight_gradient(x, grad, reach, *layer)
    db = passes.bias_gradient(grad) if ctx.has_bias and need_bias else None
    return dx, dw, db, None, None, None, None, None


torch.library.register_autograd("regrow::sparse_forward", _backward, setup_context=_setup_context, lib=_library)
for _name in ("sparse_input_gradient", "sparse_weight_gradient"):
    torch.library.register_autograd(f"regrow::{_name}", refuse_twice, lib=_library)


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
    geometry: Numbers,
    *args: Any,
    **kwargs: Any,
) -> int:
    return _flops(support, shape, passes.output_shape(x, shape[0], Geometry.from_numbers(geometry)))


@register_flop_formula(torch.ops.regrow.sparse_input_gradient, get_raw=True)
def _(grad: Tensor, weight: Tensor, support: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(support, shape, grad.shape)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient, get_raw=True)
def _(x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(reach, shape, grad.shape)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient_, get_raw=True)
def _(out: Tensor, x: Tensor, grad: Tensor, reach: Tensor, shape: Numbers, *args: Any, **kwargs: Any) -> int:
    return _flops(reach, shape, grad.shape)
