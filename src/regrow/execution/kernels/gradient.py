"""Weight gradients of dense shape without dense work: a zeroed buffer, reused while nobody else holds or changed it."""

from __future__ import annotations

import threading
from typing import Protocol

import torch
from torch import Tensor

from regrow import native
from regrow.execution.kernels import passes
from regrow.execution.kernels.context import Context, keep_origin, once_differentiable
from regrow.execution.kernels.layout import in_rows, to_channels_last, to_chwn, to_ordinary
from regrow.execution.kernels.pattern import Geometry, SparsePattern
from regrow.support import Support

_BLOCK = 1 << 22


class GradientBuffer:
    """Lends a dense-shaped tensor whose elements outside a support are zero.

    The next loan reuses the memory only if (a) it is for the same support, (b) no tensor of the last loan is alive, so a kept or
    accumulating `.grad` is never overwritten, and (c) nobody wrote into it in place since (version counter); else it is renewed or
    cleared.
    """

    def __init__(self) -> None:
        self._memory: Tensor | None = None
        self._support: Support | None = None
        self._version = -1
        self._lock = threading.Lock()

    def lend(self, like: Tensor, support: Support) -> Tensor:
        """A tensor shaped like `like`, zero outside the support's positions, which the caller is about to overwrite."""
        with self._lock:  # else two threads find the same memory free
            memory = self._memory
            kept = memory is not None and self._support is support and memory.dtype == like.dtype
            if memory is None or not kept or not native.is_plain(memory) or _is_held(memory):
                self._memory = memory = torch.zeros(like.shape, dtype=like.dtype)
                self._support = support
                self._version = memory._version
            elif memory._version != self._version:
                memory.zero_()
                self._version = memory._version
            return memory.detach()

    def holds(self, grad: Tensor, support: Support) -> bool:
        """Whether `grad` is the last loan for this support as it was written: nobody added to it, in place or elsewhere."""
        memory = self._memory
        if memory is None or self._support is not support:
            return False
        if not (native.is_plain(grad) and native.is_plain(memory)):  # fake tensors are nowhere
            return False
        return memory._version == self._version and grad.data_ptr() == memory.data_ptr()

    def __getstate__(self) -> dict[str, object]:
        return {}

    def __setstate__(self, state: dict[str, object]) -> None:
        GradientBuffer.__init__(self)


def _is_held(memory: Tensor) -> bool:
    """Whether another tensor lives on the same storage; its own and the one looked through here are two users."""
    return torch._C._storage_Use_Count(memory.untyped_storage()._cdata) > 2


def whole_weight_gradient(x: Tensor, grad: Tensor, pattern: SparsePattern) -> Tensor:
    """The weight gradient, also of missing weights.

    Full convolutions miss none and stay on the native kernels: torch takes up to eight times as long where channels are few.
    """
    if len(pattern.shape) > 2 and pattern.reached.nnz == pattern.reached.numel:
        passes.weight_gradient(full := x.new_zeros(pattern.shape), x, grad, pattern)
        return full
    return dense_weight_gradient(x, grad, pattern.shape, pattern.geometry)


def bands(shape: torch.Size, groups: int = 1) -> list[slice]:
    """The rows of a weight in parts of some millions of numbers: what is computed of missing weights is computed band by band.

    Groups of a convolution are not split, which is never large.

    Example:
        >>> bands(torch.Size([3, 4]))
        [slice(0, 3, None)]
    """
    rows = shape[0] if groups > 1 else max(1, _BLOCK // max(1, shape[1:].numel()))
    return [slice(first, min(first + rows, shape[0])) for first in range(0, shape[0], rows)]


def dense_weight_gradient(x: Tensor, grad: Tensor, shape: torch.Size, w: Geometry) -> Tensor:
    """The same by torch's dense kernels, for a weight of this shape."""
    parts = bands(shape, w.groups)
    if len(parts) == 1:
        return band_gradient(x, grad, shape, w)
    out = x.new_empty(shape)
    for rows in parts:
        out[rows] = band_gradient(x, grad[:, rows], torch.Size([rows.stop - rows.start, *shape[1:]]), w)
    return out


def band_gradient(x: Tensor, grad: Tensor, shape: torch.Size, w: Geometry) -> Tensor:
    """The dense weight gradient of a band of rows, from the gradients of its outputs."""
    if len(shape) == 2:
        return grad.flatten(1).t() @ x.flatten(1)
    top, left, bottom, right = w.padding
    if (top, left) != (bottom, right):
        x, top, left = torch.nn.functional.pad(x, (left, right, top, bottom)), 0, 0
    weight = torch.empty(shape[0], shape[1], *w.kernel, dtype=x.dtype, memory_format=torch.channels_last)
    arguments = ([*w.stride], [top, left], [*w.dilation], False, [0, 0], w.groups, [False, True, False])
    grad, x = to_channels_last(grad), to_channels_last(x)
    return torch.ops.aten.convolution_backward(grad, x, weight, None, *arguments)[1].reshape(shape).contiguous()


def watched() -> bool:
    """Whether somebody watches dispatch (FLOP counters, tracing): then passes run as registered operators.

    Otherwise they do not: torch's dispatcher costs more than a small layer's whole work.
    """
    return bool(torch._C._len_torch_dispatch_stack())


class _SparseContext(Context, Protocol):
    saved_tensors: tuple[Tensor, Tensor, Tensor]
    pattern: SparsePattern
    buffer: GradientBuffer
    dense: bool
    has_bias: bool


class SparseFunction(torch.autograd.Function):
    """The eager path: as the `sparse_forward` operator, but weight gradients go through a `GradientBuffer`."""

    @staticmethod
    def forward(
        ctx: _SparseContext,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pattern: SparsePattern,
        buffer: GradientBuffer,
        dense: bool,
    ) -> Tensor:
        """y = conv(x, weight, bias) over the pattern's entries."""
        given, x = x, passes.taken(x, pattern)  # once, for both passes
        if watched():
            y, used = torch.ops.regrow.sparse_forward(x, weight, bias, *pattern.operands()), weight
        else:
            y, used = passes.forward(x, weight, bias, pattern)
        ctx.save_for_backward(x, weight, used)
        keep_origin(ctx, given, x)
        ctx.pattern, ctx.buffer, ctx.dense, ctx.has_bias = pattern, buffer, dense, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _SparseContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, weight (at the pattern, or dense in a growth window) and bias."""
        x, weight, used = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad, dw = to_ordinary(grad) if in_rows(x) else to_chwn(grad), None
        if wants_weight:
            dense = ctx.dense
            dw = whole_weight_gradient(x, grad, ctx.pattern) if dense else ctx.buffer.lend(weight, ctx.pattern.reached)
        out = None if ctx.dense else dw
        run = observed_backward if watched() or used is weight else passes.backward
        dx, db = run(x, grad, used if wants_x else None, ctx.pattern, out, wants_bias and ctx.has_bias)
        return dx, dw, db, None, None, None


def observed_backward(
    x: Tensor, grad: Tensor, weight: Tensor | None, pattern: SparsePattern, dw: Tensor | None, wants_bias: bool
) -> tuple[Tensor | None, Tensor | None]:
    """`passes.backward` as operators that FLOP counters and traces see."""
    dx = db = None
    if weight is not None:
        layer = pattern.operands("input_gradient")
        dx = torch.ops.regrow.sparse_input_gradient(grad, weight, *layer, *passes.map_size(x))
    if dw is not None:
        torch.ops.regrow.sparse_weight_gradient_(dw, x, grad, *pattern.operands("weight_gradient"))
    if wants_bias:
        db = passes.bias_gradient(grad)
    return dx, db
