"""Where activations enter the CHWN layout: behind a dense convolution whose output goes to sparse layers.

Converting there, not before the first sparse layer, lets batch norm and ReLU in between run on the layout, and spares torch's
elementwise kernels gradients whose strides differ from their activations': they take ten times as long.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from regrow import native
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.layout import is_chwn, lies_channels_last, to_channels_last, to_chwn, to_ordinary


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
        """Torch's convolution, then the layout."""
        y = super().forward(x)
        enters = native.reads(y) and y.dim() == 4 and y.numel() > 0 and not is_chwn(y)
        return _Enter.apply(y) if enters else y
