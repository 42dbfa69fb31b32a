"""torch operators of sparse layers (namespace `regrow`): the passes for tracing, compilation and FLOP counting.

y  = sparse_forward(x, weight, bias, pattern, dense)   dx = sparse_input_gradient(grad, weight, pattern, rows, cols)
dW = sparse_weight_gradient(x, grad, pattern)          dense shape, zero outside the pattern's gradient mask

Tensors as in `passes`. After a `dense` forward pass, inside a growth window, autograd computes the full dW. `pattern` is the number of
a `SparsePattern`: lists live on the native side, so a topology update needs no recompilation.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from regrow.execution import passes
from regrow.execution.gradient import dense_weight_gradient
from regrow.execution.layout import empty_travel
from regrow.execution.pattern import pattern_of

_library = torch.library.Library("regrow", "DEF")
_library.define("sparse_forward(Tensor x, Tensor weight, Tensor? bias, int pattern, bool dense=False) -> Tensor")
_library.define("sparse_input_gradient(Tensor grad, Tensor weight, int pattern, SymInt rows, SymInt cols) -> Tensor")
_library.define("sparse_weight_gradient(Tensor x, Tensor grad, int pattern) -> Tensor")
_library.define("sparse_weight_gradient_(Tensor(a!) out, Tensor x, Tensor grad, int pattern) -> ()")


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, pattern: int, dense: bool = False) -> Tensor:
    return passes.forward(x, weight, bias, pattern_of(pattern))[0]


def _input_gradient(grad: Tensor, weight: Tensor, pattern: int, rows: int, cols: int) -> Tensor:
    return passes.input_gradient(grad, weight, pattern_of(pattern), rows, cols)


def _weight_gradient_(out: Tensor, x: Tensor, grad: Tensor, pattern: int) -> None:
    passes.weight_gradient(out, x, grad, pattern_of(pattern))


def _weight_gradient(x: Tensor, grad: Tensor, pattern: int) -> Tensor:
    out = x.new_zeros(pattern_of(pattern).mask.shape)
    passes.weight_gradient(out, x, grad, pattern_of(pattern))
    return out


_library.impl("sparse_forward", _forward, "CPU")
_library.impl("sparse_input_gradient", _input_gradient, "CPU")
_library.impl("sparse_weight_gradient", _weight_gradient, "CPU")
_library.impl("sparse_weight_gradient_", _weight_gradient_, "CPU")


@torch.library.register_fake("regrow::sparse_forward", lib=_library)
def _(x: Tensor, weight: Tensor, bias: Tensor | None, pattern: int, dense: bool = False) -> Tensor:
    return empty_travel(passes.output_shape(x, pattern_of(pattern)), x)


@torch.library.register_fake("regrow::sparse_input_gradient", lib=_library)
def _(grad: Tensor, weight: Tensor, pattern: int, rows: int, cols: int) -> Tensor:
    return empty_travel(passes.input_shape(grad, pattern_of(pattern), rows, cols), grad)


@torch.library.register_fake("regrow::sparse_weight_gradient", lib=_library)
def _(x: Tensor, grad: Tensor, pattern: int) -> Tensor:
    return x.new_empty(pattern_of(pattern).mask.shape)


@torch.library.register_fake("regrow::sparse_weight_gradient_", lib=_library)
def _(out: Tensor, x: Tensor, grad: Tensor, pattern: int) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, weight, bias, ctx.pattern, ctx.dense = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _backward(ctx: Any, grad: Tensor) -> tuple:
    x, weight = ctx.saved_tensors
    need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
    ops = torch.ops.regrow
    return (
        ops.sparse_input_gradient(grad, weight, ctx.pattern, *passes.map_size(x)) if need_x else None,
        _any_weight_gradient(x, grad, ctx.pattern, ctx.dense) if need_weight else None,
        passes.bias_gradient(grad) if ctx.has_bias and need_bias else None,
        None,
        None,
    )


def _any_weight_gradient(x: Tensor, grad: Tensor, pattern: int, dense: bool) -> Tensor:
    if dense:
        return dense_weight_gradient(x, grad, pattern_of(pattern))
    return torch.ops.regrow.sparse_weight_gradient(x, grad, pattern)


torch.library.register_autograd("regrow::sparse_forward", _backward, setup_context=_setup_context, lib=_library)


def _flops(nnz: int, output: Any) -> int:
    """Two per present weight, sample and output pixel."""
    return 2 * nnz * math.prod(output) // output[1]


@register_flop_formula(torch.ops.regrow.sparse_forward)
def _(x: Any, weight: Any, bias: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    p = pattern_of(pattern)
    return _flops(p.nnz, (x[0], 1, *(p.window.output_size(x[2], x[3]) if len(x) == 4 else ())))


@register_flop_formula(torch.ops.regrow.sparse_input_gradient)
def _(grad: Any, weight: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).nnz, grad)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient)
def _(x: Any, grad: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).gradient_nnz, grad)


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient_)
def _(out: Any, x: Any, grad: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).gradient_nnz, grad)
