"""Batch normalisation (with an optional ReLU) on CHWN tensors: native, torch's semantics.

y = (x - mean) / sqrt(var + eps) * weight + bias, with the batch's biased variance in training.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regrow import native
from regrow.execution.kernels.context import Context, once_differentiable
from regrow.execution.kernels.layout import empty_chwn, lies_chwn, to_chwn


class _NormContext(Context, Protocol):
    saved_tensors: tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor | None]
    training: bool
    has_bias: bool


class _BatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _NormContext,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        invstd: Tensor,
        training: bool,
        relu: bool,
    ) -> Tensor:
        channels, size = x.shape[1], x.numel() // x.shape[1]
        scale = invstd if weight is None else weight * invstd
        shift = -mean * scale if bias is None else bias - mean * scale
        y = empty_chwn(x.shape, x)
        native.call("scale_shift", x.dtype, x, scale, shift, y, channels, size, int(relu))
        ctx.save_for_backward(x, weight, mean, invstd, y if relu else None)
        ctx.training, ctx.has_bias = training, bias is not None
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: _NormContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, invstd, y = ctx.saved_tensors
        channels, size = x.shape[1], x.numel() // x.shape[1]
        dx = empty_chwn(x.shape, x) if ctx.needs_input_grad[0] else None
        dweight = x.new_empty(channels) if weight is not None else None
        dbias = x.new_empty(channels) if ctx.has_bias else None
        grad = to_chwn(grad)
        native.call(
            "norm_backward",
            x.dtype,
            x,
            y,
            grad,
            mean,
            invstd,
            weight,
            dx,
            dweight,
            dbias,
            channels,
            size,
            int(ctx.training),
        )
        return dx, dweight, dbias, None, None, None, None


def _batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, variance = x.new_empty(x.shape[1]), x.new_empty(x.shape[1])
    native.call("channel_statistics", x.dtype, x.detach(), x.shape[1], x.numel() // x.shape[1], mean, variance)
    return mean, variance


def _update_running(module: _BatchNorm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Running statistics that somebody took away (set to None) are no longer tracked."""
    momentum = 0.0 if module.momentum is None else module.momentum
    if module.num_batches_tracked is not None:
        module.num_batches_tracked.add_(1)
        momentum = 1.0 / float(module.num_batches_tracked) if module.momentum is None else momentum
    if module.running_mean is not None and module.running_var is not None:
        module.running_mean.lerp_(mean, momentum)
        module.running_var.lerp_(variance * (count / (count - 1)), momentum)


def batch_norm(module: _BatchNorm, x: Tensor, relu: bool = False) -> Tensor:
    """`module(x)`, then ReLU if wanted, for a CHWN `x`."""
    module._check_input_dim(x)
    mean, variance = module.running_mean, module.running_var
    if training := module.training or mean is None or variance is None:
        count = x.numel() // x.shape[1]
        if count <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.size()}")
        mean, variance = _batch_statistics(x)
        if module.training and module.track_running_stats:
            _update_running(module, mean, variance, count)
    invstd = (variance + module.eps).rsqrt()
    return _BatchNormFunction.apply(x, module.weight, module.bias, mean, invstd, training, relu)


def takes(module: _BatchNorm, x: Tensor) -> bool:
    """True if the native path applies to this input."""
    if not native.reads(x) or not x.numel() or not lies_chwn(x):
        return False
    beside = (module.weight, module.bias, module.running_mean, module.running_var)
    return all(t is None or (t.dtype == x.dtype and t.shape == x.shape[1:2] and t.is_contiguous()) for t in beside)


class ChwnBatchNorm1d(nn.BatchNorm1d):
    """`nn.BatchNorm1d` that keeps the CHWN layout."""

    def forward(self, x: Tensor) -> Tensor:
        """Native on CHWN tensors, torch otherwise."""
        return batch_norm(self, x) if takes(self, x) else super().forward(x)


class ChwnBatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` that keeps the CHWN layout."""

    def forward(self, x: Tensor) -> Tensor:
        """Native on CHWN tensors, torch otherwise."""
        return batch_norm(self, x) if takes(self, x) else super().forward(x)
