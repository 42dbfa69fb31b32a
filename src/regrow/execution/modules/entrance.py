"""Where activations enter the CHWN layout: behind a dense convolution whose output goes to sparse layers.

Converting there, not before the first sparse layer, lets batch norm and ReLU in between run on the layout, and spares torch's
elementwise kernels gradients whose strides differ from their activations': they take ten times as long.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

from regrow.execution.kernels import native
from regrow.execution.kernels.context import once_differentiable
from regrow.execution.kernels.layout import is_chwn, to_chwn, to_ordinary


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        """The same numbers, samples innermost."""
        return to_chwn(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        """The gradient in the order that torch's convolutions read."""
        return to_ordinary(grad)


class ChwnConv2d(nn.Conv2d):
    """A dense `nn.Conv2d` whose output is in CHWN."""

    def forward(self, x: Tensor) -> Tensor:
        """Torch's convolution, then the layout."""
        y = super().forward(x)
        enters = native.reads(y) and y.dim() == 4 and y.numel() > 0 and not is_chwn(y)
        return _Enter.apply(y) if enters else y
