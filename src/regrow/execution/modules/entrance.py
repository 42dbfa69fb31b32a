"""Where activations enter the CHWN layout: behind a dense convolution whose output goes to sparse layers.

Converting there, not before the first sparse layer, lets batch norm and ReLU in between run on the layout, and spares torch's
elementwise kernels gradients whose strides differ from their activations': they take ten times as long. A convolution of images computes
on our kernels, as if all its weights had been chosen: torch's are made for vectors of channels, and its maps would have to be rearranged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.gradient import GradientBuffer, SparseFunction
from regrow.execution.kernels.layout import is_chwn, lies_channels_last, to_channels_last, to_chwn, to_ordinary
from regrow.execution.kernels.pattern import Geometry, SparsePattern
from regrow.execution.modules.geometry import geometry_of

_IMAGE_CHANNELS = 4


class _EnterContext(Context, Protocol):
    channels_last: bool


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _EnterContext, x: Tensor) -> Tensor:
        """The same numbers, samples innermost."""
        ctx.channels_last = lies_channels_last(x)
        return to_chwn(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: _EnterContext, grad: Tensor) -> Tensor:
        """The gradient in the order that the convolution computed in."""
        return to_channels_last(grad) if ctx.channels_last else to_ordinary(grad)


class ChwnConv2d(nn.Conv2d):
    """A dense `nn.Conv2d` whose output is in CHWN."""

    def forward(self, x: Tensor) -> Tensor:
        """Our kernels for images; else torch's convolution, then the layout."""
        if self._sees_images(x):
            pattern = _of_all_weights(tuple(self.weight.shape), geometry_of(self))
            return SparseFunction.apply(x, self.weight, self.bias, pattern, GradientBuffer(), False)
        y = super().forward(x)
        enters = native.reads(y) and y.dim() == 4 and y.numel() > 0 and not is_chwn(y)
        return _Enter.apply(y) if enters else y

    def _sees_images(self, x: Tensor) -> bool:
        if not (native.reads(x) and native.reads(self.weight)) or torch.is_autocast_enabled("cpu"):
            return False
        fits = (
            x.dim() == 4
            and x.numel() > 0
            and x.shape[1] == self.in_channels <= _IMAGE_CHANNELS
            and x.dtype == self.weight.dtype
        )
        return fits and self.padding_mode == "zeros"


@lru_cache(maxsize=16)
def _of_all_weights(shape: tuple[int, ...], geometry: Geometry) -> SparsePattern:
    return SparsePattern(torch.ones(shape, dtype=torch.bool), geometry)
