"""Weight gradients of dense shape without dense work: a zeroed buffer, reused while nobody else holds or changed it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from regrow.execution.layout import to_travel
from regrow.execution.ops import gather, operators
from regrow.execution.pattern import SparsePattern


class GradientBuffer:
    """Lends a dense-shaped tensor whose elements outside the pattern are zero.

    The next loan reuses the memory only if (a) no tensor of the last loan is alive, so a kept or accumulating `.grad`
    is never overwritten, and (b) nobody wrote into it in place since (version counter); else it is renewed or cleared.
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._version = -1

    def lend(self, like: Tensor) -> Tensor:
        """A tensor shaped like `like`, zero outside the positions that the caller is about to overwrite."""
        memory = self._memory
        fits = memory is not None and memory.shape == like.shape and memory.dtype == like.dtype
        if not fits or torch._C._storage_Use_Count(memory.untyped_storage()._cdata) > 2:
            self._memory = memory = torch.zeros(like.shape, dtype=like.dtype)
        elif memory._version != self._version:
            memory.zero_()
        return memory.detach()

    def written(self) -> None:
        """Record that the pattern's positions of the loan were written, and nothing else."""
        if self._memory is not None:
            self._version = self._memory._version

    def forget(self) -> None:
        """Drop the memory: the pattern changed, other positions must be zero now."""
        self._memory = None

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__()


def dense_weight_gradient(x: Tensor, grad: Tensor, pattern: SparsePattern) -> Tensor:
    """The full weight gradient, also of missing weights, by torch's dense kernels."""
    w, shape = pattern.window, pattern.mask.shape
    if len(shape) == 2:
        return grad.flatten(1).t() @ x.flatten(1)
    top, left, bottom, right = w.padding
    if (top, left) != (bottom, right):
        x, top, left = torch.nn.functional.pad(x, (left, right, top, bottom)), 0, 0
    weight = x.new_empty(shape[0], shape[1], *w.kernel)
    arguments = ([*w.stride], [top, left], [*w.dilation], False, [0, 0], w.groups, [False, True, False])
    return torch.ops.aten.convolution_backward(grad.contiguous(), x.contiguous(), weight, None, *arguments)[1].view(
        shape
    )


class SparseFunction(torch.autograd.Function):
    """The eager path: as the `sparse_forward` operator, but weight gradients go through a `GradientBuffer`."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pattern: SparsePattern,
        buffer: GradientBuffer,
        dense: bool,
    ) -> Tensor:
        """y = conv(x, weight, bias) over the pattern's entries."""
        # Converted once, for both passes: an input that does not travel yet is usually the data itself.
        x, present = to_travel(x) if x.dim() == 4 else x, gather(weight, pattern)
        ctx.save_for_backward(x, weight, present)
        ctx.pattern, ctx.buffer, ctx.dense, ctx.has_bias = pattern, buffer, dense, bias is not None
        return operators().sparse_forward(x, present, bias, pattern.number)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, weight (at the pattern, or dense in a growth window) and bias."""
        x, weight, present = ctx.saved_tensors
        number, ops = ctx.pattern.number, operators()
        grad = to_travel(grad)
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = ops.sparse_input_gradient(grad, present, number, x.shape[2], x.shape[3])
        if ctx.needs_input_grad[1]:
            if ctx.dense:
                dw = dense_weight_gradient(x, grad, ctx.pattern)
            else:
                dw = ctx.buffer.lend(weight)
                ops.sparse_weight_gradient_(dw, x, grad, number)
                ctx.buffer.written()
        if ctx.has_bias and ctx.needs_input_grad[2]:
            db = grad.sum((0, 2, 3))
        return dx, dw, db, None, None, None
