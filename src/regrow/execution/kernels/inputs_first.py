"""Linear layers whose weight has its inputs first, y = x W + b: the passes of a layer with weight W [outputs, inputs], exchanged.

What is that layer's input gradient is the output here, and its output the input gradient, so that weights, supports and gradients
stay in their own order and nothing is transposed.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from regrow.execution.kernels import passes
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.gradient import GradientBuffer, watched, whole_weight_gradient
from regrow.execution.kernels.layout import in_rows, to_chwn, to_kernel, to_ordinary
from regrow.execution.kernels.pattern import SparsePattern


class _InputsFirstContext(Context, Protocol):
    saved_tensors: tuple[Tensor, Tensor]
    pattern: SparsePattern
    buffer: GradientBuffer
    dense: bool
    has_bias: bool


class InputsFirstFunction(torch.autograd.Function):
    """As `SparseFunction`, for features and a weight [inputs, outputs]."""

    @staticmethod
    def forward(
        ctx: _InputsFirstContext,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pattern: SparsePattern,
        buffer: GradientBuffer,
        dense: bool,
    ) -> Tensor:
        """y = x W + b over the pattern's entries."""
        x = to_kernel(x)
        if watched():
            y = torch.ops.regrow.sparse_input_gradient(x, weight, *pattern.operands("input_gradient"), 1, 1)
            y = y if bias is None else y + bias
        else:
            y = passes.input_gradient(x, weight, pattern, 1, 1, bias)
        ctx.save_for_backward(x, weight)
        ctx.pattern, ctx.buffer, ctx.dense, ctx.has_bias = pattern, buffer, dense, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _InputsFirstContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, weight (at the pattern, or dense in a growth window) and bias."""
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad = to_ordinary(grad) if in_rows(x) else to_chwn(grad)
        dx = _input_gradient(grad, weight, ctx.pattern) if wants_x else None
        dw = _weight_gradient(x, grad, weight, ctx) if wants_weight else None
        db = passes.bias_gradient(grad) if wants_bias and ctx.has_bias else None
        return dx, dw, db, None, None, None


def _input_gradient(grad: Tensor, weight: Tensor, pattern: SparsePattern) -> Tensor:
    if watched():
        return torch.ops.regrow.sparse_forward(grad, weight, None, *pattern.operands())
    return passes.forward(grad, weight, None, pattern)[0]


def _weight_gradient(x: Tensor, grad: Tensor, weight: Tensor, ctx: _InputsFirstContext) -> Tensor:
    pattern = ctx.pattern
    if ctx.dense:
        return whole_weight_gradient(grad, x, pattern)
    dw = ctx.buffer.lend(weight, pattern.reached)
    if watched():
        torch.ops.regrow.sparse_weight_gradient_(dw, grad, x, *pattern.operands("weight_gradient"))
    else:
        passes.weight_gradient(dw, grad, x, pattern)
    return dw
