"""The CHWN layout: logical (N, C, H, W) tensors stored as [C][H][W][N], samples fastest.

It is expressed in plain strides, so elementwise torch functions (ReLU, `+`, dropout) keep it and `flatten(1)` gives the
[features][N] layout of linear layers without a copy. Linear layers also compute on ordinary (N, features), and then stay there.

>>> import torch
>>> x = to_chwn(torch.zeros(8, 3, 4, 4))
>>> x.shape, x.stride()
(torch.Size([8, 3, 4, 4]), (1, 128, 32, 8))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from regrow import native

_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
_LARGE, _ALIGNMENT = 1 << 18, 64


def samples_last(x: Tensor) -> Tensor:
    """The same memory with the sample dimension last: contiguous exactly if `x` is in CHWN."""
    return x.permute(*range(1, x.dim()), 0)


def chwn_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a CHWN tensor.

    >>> chwn_strides((8, 3, 4, 4))
    (1, 128, 32, 8)
    """
    if len(shape) == 2:
        return 1, shape[0]
    strides, step = [1], shape[0]
    for size in reversed(shape[1:]):
        strides.insert(1, step)
        step = step * size
    return tuple(strides)


def _ordinary_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Those of a contiguous tensor.

    >>> _ordinary_strides((8, 3, 4, 4))
    (48, 16, 4, 1)
    """
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def is_chwn(x: Tensor) -> bool:
    """True if `x` is stored samples-fastest without gaps."""
    if x.stride() == chwn_strides(x.shape):
        return True
    # Where a dimension has one element, or the tensor none, strides mean nothing.
    return min(x.shape) <= 1 and samples_last(x).is_contiguous()


def lies_chwn(x: Tensor) -> bool:
    """True if `x` is in the CHWN layout and not also an ordinary contiguous tensor."""
    return x.dim() >= 2 and is_chwn(x) and not x.is_contiguous()


def lies_channels_last(x: Tensor) -> bool:
    """True if `x` is maps in torch's channels_last and not also an ordinary contiguous tensor."""
    return x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def empty_chwn(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised CHWN tensor of the given logical shape, with the dtype and device of `like`."""
    return empty(shape, chwn_strides(shape), like)


def empty(shape: Sequence[int], strides: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor with the dtype and device of `like`; a large one in memory of plain ``malloc``, aligned by hand.

    Torch asks glibc for aligned memory. That needs a little more room than the same request has freed, so before glibc 2.38 freed maps
    are not lent again: a step of VGG16-D took 1.5 times the memory.
    """
    if math.prod(shape) < _LARGE or not native.reads(like):
        return like.new_empty_strided(shape, strides)
    size = like.element_size()
    try:
        memory = np.empty(math.prod(shape) * size + _ALIGNMENT, np.uint8)
    except MemoryError:  # torch has its own error for that, which callers know
        return like.new_empty_strided(shape, strides)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    return torch.from_numpy(np.ndarray(shape, _NUMPY[like.dtype], memory, start, [size * stride for stride in strides]))


def empty_vector(count: int, like: Tensor) -> Tensor:
    """An uninitialised vector with the dtype and device of `like`."""
    return empty((count,), (1,), like)


def in_rows(x: Tensor) -> bool:
    """True if `x` is features as torch has them, sample after sample: linear kernels take these as they are, and give them back."""
    return x.dim() == 2 and x.is_contiguous() and not is_chwn(x)


def empty_as(shape: Sequence[int], like: Tensor) -> Tensor:
    """An uninitialised tensor in the layout of `like`: features in rows or in CHWN."""
    return empty(shape, (shape[1], 1), like) if in_rows(like) else empty_chwn(shape, like)


def to_chwn(x: Tensor) -> Tensor:
    """`x` in the CHWN layout, with its own strides; a copy only if needed."""
    strides = chwn_strides(x.shape)
    x = x.resolve_neg()  # a negated view shows other numbers than its memory holds
    if x.stride() == strides:
        return x
    if is_chwn(x):  # where a dimension has one element other strides are legal too, but BLAS rounds by them
        return x.as_strided(x.shape, strides)
    y = empty_chwn(x.shape, x)
    if lies_channels_last(x) and _native(x):  # [N][H][W][C] to [C][H][W][N]: the way back is the same exchange
        native.call("channels_last", x.dtype, x, x.shape[0], x.shape[2] * x.shape[3], x.shape[1], y)
        return y
    x = x.contiguous()
    if _native(x):
        native.call("transpose", x.dtype, x, x.shape[0], x.numel() // x.shape[0], y)
        return y
    return y.copy_(x)


def to_kernel(x: Tensor) -> Tensor:
    """`x` as kernels read it: rows stay rows, all else is brought to CHWN; a copy only if needed."""
    return x.resolve_neg() if in_rows(x) else to_chwn(x)


def to_ordinary(x: Tensor) -> Tensor:
    """`x` in torch's usual order; a copy only if needed."""
    x = x.resolve_neg()
    if x.is_contiguous() or not _native(x) or not is_chwn(x):
        return x.contiguous()
    y = empty(x.shape, _ordinary_strides(x.shape), x)
    native.call("transpose", x.dtype, x, x.numel() // x.shape[0], x.shape[0], y)
    return y


def to_channels_last(x: Tensor) -> Tensor:
    """Maps in torch's channels_last, in which its dense convolutions are fastest; a copy only if needed."""
    if x.is_contiguous(memory_format=torch.channels_last) or not _native(x) or not is_chwn(x):
        return x.contiguous(memory_format=torch.channels_last)
    y = torch.empty(x.shape, dtype=x.dtype, memory_format=torch.channels_last)
    native.call("channels_last", x.dtype, x, x.shape[1], x.shape[2] * x.shape[3], x.shape[0], y)
    return y


def _native(x: Tensor) -> bool:
    """Whether native code may copy `x`: a tensor with memory of its own, which no compiler traces; autograd sees nothing of it."""
    return native.reads(x) and native.is_plain(x) and not (x.requires_grad and torch.is_grad_enabled())
