"""Dropout with torch's random numbers, bit for bit, and without the time torch takes to draw them one by one.

Where torch draws in another way (its Mersenne twister is not used on every CPU), torch's own dropout runs.
"""

from __future__ import annotations

import functools
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.gradient import watched
from regrow.execution.kernels.layout import is_chwn

_BLOCK = 624
_FEW = 4096  # for fewer numbers the generator's state takes longer to read than torch to draw
# The state that `torch.Generator.get_state` gives: seed, numbers left in the block plus one, seeded, position, the block, normal numbers.
_LEFT, _POSITION, _NUMBERS = slice(8, 12), slice(16, 24), slice(24, 24 + 8 * _BLOCK)


def bernoulli(count: int, p: float, generator: torch.Generator) -> Tensor:
    """`torch.empty(count).bernoulli_(p, generator=generator)` as bytes, for a positive count, leaving the generator in the same state."""
    keep, state = torch.empty(count, dtype=torch.uint8), generator.get_state()
    raw = state.numpy()
    numbers, left, position = (
        raw[part].view(kind) for part, kind in ((_NUMBERS, np.uint64), (_LEFT, np.int32), (_POSITION, np.uint64))
    )
    twister = np.empty(_BLOCK + 1, np.uint32)
    twister[:_BLOCK], twister[_BLOCK] = numbers, _BLOCK + 1 - left[0]
    native.call("bernoulli", torch.float32, twister.ctypes.data, p, keep, count)
    numbers[:], left[0], position[0] = twister[:_BLOCK], _BLOCK + 1 - int(twister[_BLOCK]), twister[_BLOCK]
    generator.set_state(state)
    return keep


@functools.cache
def same_stream() -> bool:
    """Whether `bernoulli` above draws what torch draws on this machine."""
    if not native.available() or torch.Generator().get_state().numel() < _NUMBERS.stop:
        return False
    ours, theirs = (torch.Generator().manual_seed(1) for _ in range(2))
    for count in (3, 2 * _BLOCK):
        drawn = torch.empty(count).bernoulli_(0.3, generator=theirs)
        if not torch.equal(bernoulli(count, 0.3, ours).float(), drawn):
            return False
    return torch.equal(ours.get_state(), theirs.get_state())


class _DropoutContext(Context, Protocol):
    keep: Tensor
    scale: float
    strides: tuple[int, ...]


class _DropoutFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _DropoutContext, x: Tensor, p: float) -> Tensor:
        """x / (1 - p) where kept, else 0."""
        ctx.keep = bernoulli(x.numel(), 1 - p, torch.default_generator)
        ctx.scale, ctx.strides = float(torch.ones((), dtype=x.dtype).div_(1 - p)), x.stride()
        return _scaled(x, ctx.keep, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: _DropoutContext, grad: Tensor) -> tuple[Tensor, None]:
        """The same for the gradient."""
        if grad.stride() != ctx.strides:
            grad = torch.empty_strided(grad.shape, ctx.strides, dtype=grad.dtype).copy_(grad)
        return _scaled(grad, ctx.keep, ctx.scale), None


def _scaled(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    y = torch.empty_like(x)
    native.call("scale_kept", x.dtype, x, keep, scale, y, x.numel())
    return y


def takes(module: nn.Dropout, x: Tensor) -> bool:
    """True if the native path applies: training, an ordinary probability, memory without gaps."""
    if not module.training or not 0 < module.p < 1 or module.inplace or x.numel() < _FEW:
        return False
    if not native.reads(x) or watched() or x.dim() < 2:
        return False
    return (x.is_contiguous() or is_chwn(x)) and same_stream()


class ChwnDropout(nn.Dropout):
    """`nn.Dropout` that draws its numbers natively."""

    def forward(self, x: Tensor) -> Tensor:
        """Native where it makes the same numbers, torch otherwise."""
        return _DropoutFunction.apply(x, self.p) if takes(self, x) else super().forward(x)
