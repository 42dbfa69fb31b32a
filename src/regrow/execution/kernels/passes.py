"""The passes of one sparse layer on native kernels: arguments checked, one native call each way.

y = forward(x, weight, bias, pattern)        dx, dW, db = backward(x, grad, weight, pattern, ...)

Maps are (N, C, H, W) or, for linear layers, (N, features), in any strides; results are in CHWN, or are
ordinary rows where features arrive as such. `weight` is the dense-shaped weight or,
saving a pass over it, the present weights in mask order that `forward` returns beside y.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regrow import native
from regrow.execution.kernels.layout import empty_as, in_rows, to_chwn, to_kernel, to_ordinary
from regrow.execution.kernels.pattern import Geometry, SparsePattern, refuse_large


def map_size(x: Tensor) -> tuple[int, int]:
    """Rows and columns of a map; features are maps of one pixel."""
    return (x.shape[2], x.shape[3]) if x.dim() == 4 else (1, 1)


def output_shape(x: Tensor, channels: int, geometry: Geometry) -> tuple[int, ...]:
    """Shape of the output of a layer with so many output channels."""
    if x.dim() == 2:
        return x.shape[0], channels
    if x.dim() != 4:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected features (N, C) or maps (N, C, rows, cols)")
    return (x.shape[0], channels, *geometry.output_size(x.shape[2], x.shape[3]))


def input_shape(grad: Tensor, channels: int, rows: int, cols: int) -> tuple[int, ...]:
    """Shape of the input of a layer with so many input channels, from a gradient of its output and the size of input maps."""
    if grad.dim() not in (2, 4):
        raise ValueError(f"grad has shape {tuple(grad.shape)}, expected features (N, C) or maps (N, C, rows, cols)")
    return (grad.shape[0], channels, rows, cols) if grad.dim() == 4 else (grad.shape[0], channels)


def bias_gradient(grad: Tensor) -> Tensor:
    """dL/dbias: the sum over samples and pixels."""
    return grad.sum([axis for axis in range(grad.dim()) if axis != 1])


def taken(x: Tensor, p: SparsePattern) -> Tensor:
    """The input as kernels read it; maps that are too large for them are refused before they are copied."""
    if x.dim() == 4:
        refuse_large(p.shape, p.geometry, *map_size(x))
    return to_kernel(x)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, p: SparsePattern) -> tuple[Tensor, Tensor]:
    """The output and the present weights, for a later `backward`."""
    _check_maps("x", x, p.in_channels, p)
    if bias is not None:
        _check("bias", bias, (p.out_channels,), x.dtype)
        bias = bias.contiguous()
    x, rows = taken(x, p), in_rows(x)
    y, plan = empty_as(output_shape(x, p.out_channels, p.geometry), x), p.plan("forward", *map_size(x), x.dtype, len(x))
    source, position, count, present = _weights(weight, p, x.dtype)
    native.call("forward", x.dtype, plan, x, source, position, count, present, bias, y, x.shape[0], rows)
    return y, present


def input_gradient(
    grad: Tensor, weight: Tensor, p: SparsePattern, rows: int, cols: int, bias: Tensor | None = None
) -> Tensor:
    """dL/dx for input maps of rows x cols; plus a bias where it is the output of a linear layer with inputs first."""
    _check_maps("grad", grad, p.out_channels, p)
    if grad.dim() == 4:
        _check("grad", grad, (grad.shape[0], p.out_channels, *p.geometry.output_size(rows, cols)), grad.dtype)
    elif (rows, cols) != (1, 1):
        raise ValueError(f"grad has shape {tuple(grad.shape)}, which maps of {rows} x {cols} pixels cannot have")
    if bias is not None:
        _check("bias", bias, (p.in_channels,), grad.dtype)
        bias = bias.contiguous()
    grad, in_order = to_kernel(grad), in_rows(grad)
    dx, samples = empty_as(input_shape(grad, p.in_channels, rows, cols), grad), grad.shape[0]
    plan = p.plan("input_gradient", rows, cols, grad.dtype, samples)
    source, position, count, present = _weights(weight, p, grad.dtype)
    native.call("forward", grad.dtype, plan, grad, source, position, count, present, bias, dx, samples, in_order)
    return dx


def weight_gradient(out: Tensor, x: Tensor, grad: Tensor, p: SparsePattern) -> None:
    """Write dL/dW at the gradient mask's positions of `out`; nothing else is touched."""
    backward(x, grad, None, p, dw=out)


def backward(
    x: Tensor,
    grad: Tensor,
    present: Tensor | None,
    p: SparsePattern,
    dw: Tensor | None = None,
    wants_bias: bool = False,
) -> tuple[Tensor | None, Tensor | None]:
    """dL/dx (where the `present` weights are given) and dL/dbias (where wanted); dL/dW goes to `dw`.

    That is dense-shaped, and only the positions of present weights are written; or it has present weights alone, in mask order.
    """
    _check_maps("x", x, p.in_channels, p)
    _check("grad", grad, output_shape(x, p.out_channels, p.geometry), x.dtype)
    x, in_order = taken(x, p), in_rows(x)
    grad, (rows, cols) = to_ordinary(grad) if in_order else to_chwn(grad), map_size(x)
    dx = dbias = into = onto = positions = None
    count = 0
    if present is not None:
        _check("weight", present, (p.support.nnz,), x.dtype)
        dx, into = empty_as(x.shape, x), p.plan("input_gradient", rows, cols, x.dtype, len(x))
    if dw is not None:
        present_only = dw.dim() == 1
        _check("out", dw, (p.reached.nnz,) if present_only else tuple(p.shape), x.dtype)
        if not dw.is_contiguous():
            raise ValueError("out must be contiguous")
        onto = p.plan("weight_gradient", rows, cols, x.dtype, len(x))
        positions, count = None if present_only else p.reached.positions, p.reached.nnz
    if wants_bias:
        dbias = x.new_empty(p.out_channels)
    sizes = (p.out_channels, grad.numel() // max(1, len(grad) * p.out_channels), len(x))
    same = p.reached is p.support
    native.call(
        "backward", x.dtype, into, onto, same, x, grad, present, positions, count, dx, dw, dbias, *sizes, in_order
    )
    return dx, dbias


def _weights(weight: Tensor, p: SparsePattern, dtype: torch.dtype) -> tuple[Tensor, Tensor | None, int, Tensor]:
    """Where the kernel finds weights: (source, positions of the present ones in it or None, their number, memory for them)."""
    if weight.dim() == 1:
        _check("weight", weight, (p.support.nnz,), dtype)
        present = weight.contiguous()
        return present, None, 0, present
    _check("weight", weight, tuple(p.shape), dtype)
    positions = p.support.positions
    return weight.contiguous(), positions, positions.numel(), weight.new_empty(positions.numel())


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor.dtype != dtype or not tensor.is_cpu:
        raise TypeError(f"{name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")


def _check_maps(name: str, x: Tensor, channels: int, p: SparsePattern) -> None:
    if x.dtype not in native.SUFFIX or not x.is_cpu:
        raise TypeError(
            f"{name} must be float32 or float64 on the CPU, got {x.dtype} on {x.device}: call handle.densify() before you move or convert "
            "the model"
        )
    linear = len(p.shape) == 2
    if x.dim() not in ((2, 4) if linear else (4,)) or x.shape[1] != channels:
        expected = f"(N, {channels})" if linear else f"(N, {channels}, rows, cols)"
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected {expected}")
