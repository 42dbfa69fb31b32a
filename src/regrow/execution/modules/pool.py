"""Pooling on CHWN tensors: max natively; averages as torch reductions that keep the layout."""

from __future__ import annotations

import ctypes
from typing import Protocol

import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.layout import empty_chwn, lies_chwn, samples_last, to_chwn
from regrow.native.records import Pool


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _pooled(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    """Output size with torch's rule: a window of `ceil_mode` must start inside the input or its left padding."""
    room = size + 2 * pad - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)
    out = room // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + pad else out


class _PoolContext(Context, Protocol):
    saved_tensors: tuple[Tensor]
    pool: Pool
    shape: torch.Size


class _MaxPoolFunction(torch.autograd.Function):
    """Max pooling, then ReLU if wanted: on the pooled map it is the same function as before it, and less work."""

    @staticmethod
    def forward(ctx: _PoolContext, x: Tensor, out: tuple[int, int], window: tuple[int, ...], relu: bool) -> Tensor:
        ctx.pool = Pool(x.shape[1], *x.shape[2:], *out, *window, relu)
        y = empty_chwn((*x.shape[:2], *out), x)
        winner = torch.empty(y.numel(), dtype=torch.uint8)
        native.call("max_pool", x.dtype, ctypes.byref(ctx.pool), x, y, winner, x.shape[0])
        ctx.save_for_backward(winner)
        ctx.shape = x.shape
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _PoolContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        (winner,) = ctx.saved_tensors
        dx = empty_chwn(ctx.shape, grad)
        native.call("max_pool_backward", grad.dtype, ctypes.byref(ctx.pool), to_chwn(grad), winner, dx, ctx.shape[0])
        return dx, None, None, None


def _native(x: Tensor) -> bool:
    return native.reads(x) and x.dim() == 4 and x.numel() > 0 and lies_chwn(x)


class ChwnMaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d` that keeps the CHWN layout."""

    def forward(self, x: Tensor) -> Tensor:
        """Native on CHWN tensors, torch otherwise."""
        return max_pool(self, x) if takes(self, x) else super().forward(x)


def _windows(module: nn.MaxPool2d, x: Tensor) -> tuple[tuple[int, int], tuple[int, ...]]:
    """Output size, and kernel, stride, padding and dilation in one."""
    kernel, stride, pad, dilation = map(_pair, (module.kernel_size, module.stride, module.padding, module.dilation))
    rows, cols = (_pooled(x.shape[2 + a], kernel[a], stride[a], pad[a], dilation[a], module.ceil_mode) for a in (0, 1))
    return (rows, cols), (*kernel, *stride, *pad, *dilation)


def takes(module: nn.MaxPool2d, x: Tensor) -> bool:
    """True if the native path applies to this input."""
    if not _native(x) or module.return_indices:
        return False
    kernel, pad = _pair(module.kernel_size), _pair(module.padding)
    valid = kernel[0] * kernel[1] <= 255 and all(2 * p <= k for p, k in zip(pad, kernel, strict=True))
    if max(pad) > 0 and max(_pair(module.dilation)) > 1:
        return False  # a window may lie in the padding altogether
    return valid and min(_windows(module, x)[0]) > 0


def max_pool(module: nn.MaxPool2d, x: Tensor, relu: bool = False) -> Tensor:
    """`module(x)` with a ReLU before it if wanted, for a CHWN `x`."""
    return _MaxPoolFunction.apply(x, *_windows(module, x), relu)


def _average(x: Tensor, rows: int, cols: int) -> Tensor:
    """Means over disjoint windows of rows x cols."""
    c, h, w, n = samples_last(x).shape
    means = samples_last(x).reshape(c, h // rows, rows, w // cols, cols, n).mean((2, 4))
    return means.permute(3, 0, 1, 2)


class ChwnAvgPool2d(nn.AvgPool2d):
    """`nn.AvgPool2d` that keeps the CHWN layout where windows tile the map."""

    def forward(self, x: Tensor) -> Tensor:
        """A reduction on CHWN tensors, torch otherwise."""
        kernel, stride = _pair(self.kernel_size), _pair(self.stride)
        plain = kernel == stride and _pair(self.padding) == (0, 0) and self.divisor_override is None
        if not _native(x) or not plain or x.shape[2] % kernel[0] or x.shape[3] % kernel[1]:
            return super().forward(x)
        return _average(x, *kernel)


class ChwnAdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """`nn.AdaptiveAvgPool2d` that keeps the CHWN layout where windows tile the map."""

    def forward(self, x: Tensor) -> Tensor:
        """A reduction on CHWN tensors, torch otherwise."""
        size = self.output_size if isinstance(self.output_size, tuple | list) else (self.output_size,) * 2
        if not _native(x):
            return super().forward(x)
        rows, cols = (here if wanted is None else wanted for here, wanted in zip(x.shape[2:], size, strict=True))
        if 0 in (rows, cols) or x.shape[2] % rows or x.shape[3] % cols:
            return super().forward(x)
        return _average(x, x.shape[2] // rows, x.shape[3] // cols)
