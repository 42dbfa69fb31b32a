"""torch operators of sparse layers (namespace `regrow`), on 4-D maps: (N, C, H, W) in any strides, results travel.

y  = sparse_forward(x, weight, bias, pattern)          dx = sparse_input_gradient(grad, weight, pattern, rows, cols)
dW = sparse_weight_gradient(x, grad, pattern)          dense shape, zero outside the pattern's gradient mask

`weight` is the dense-shaped weight or, saving a pass over it, `gather(weight, pattern)`: present weights in mask order.
`pattern` is the number of a `SparsePattern`: lists live on the native side, a topology update needs no recompilation.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from regrow.execution import native
from regrow.execution.layout import empty_travel, to_travel
from regrow.execution.pattern import SparsePattern, pattern_of

_library = torch.library.Library("regrow", "DEF")
_library.define("sparse_forward(Tensor x, Tensor weight, Tensor? bias, int pattern) -> Tensor")
_library.define("sparse_input_gradient(Tensor grad, Tensor weight, int pattern, SymInt rows, SymInt cols) -> Tensor")
_library.define("sparse_weight_gradient(Tensor x, Tensor grad, int pattern) -> Tensor")
_library.define("sparse_weight_gradient_(Tensor(a!) out, Tensor x, Tensor grad, int pattern) -> ()")


def _checked(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor.device.type != "cpu" or tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype} on the CPU, got {tensor.dtype} on {tensor.device}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")


def _check_input(x: Tensor, channels: int, name: str) -> None:
    if x.dtype not in native.SUFFIX:
        raise TypeError(f"{name} must be float32 or float64, got {x.dtype}")
    if x.dim() != 4 or x.shape[1] != channels:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, expected (N, {channels}, rows, cols)")


def _output_shape(x: Tensor, p: SparsePattern) -> tuple[int, int, int, int]:
    return (x.shape[0], p.out_channels, *p.window.output_size(x.shape[2], x.shape[3]))


def gather(weight: Tensor, p: SparsePattern) -> Tensor:
    """The present elements of a dense-shaped weight, in row-major order of the mask."""
    _checked("weight", weight, tuple(p.mask.shape), weight.dtype)
    positions = p.positions()
    present = weight.new_empty(positions.numel())
    native.call("gather", weight.dtype, weight.detach().contiguous(), positions, positions.numel(), present)
    return present


def _present(weight: Tensor, p: SparsePattern, dtype: torch.dtype) -> Tensor:
    if weight.dim() == 1:
        _checked("weight", weight, (p.nnz,), dtype)
        return weight.contiguous()
    _checked("weight", weight, tuple(p.mask.shape), dtype)
    return gather(weight, p)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, pattern: int) -> Tensor:
    p = pattern_of(pattern)
    _check_input(x, p.in_channels, "x")
    present = _present(weight, p, x.dtype)
    if bias is not None:
        _checked("bias", bias, (p.out_channels,), x.dtype)
        bias = bias.contiguous()
    y = empty_travel(_output_shape(x, p), x)
    plan = p.plan("forward", x.shape[2], x.shape[3])
    native.call("forward", x.dtype, plan, to_travel(x), present, bias, y, x.shape[0])
    return y


def _input_gradient(grad: Tensor, weight: Tensor, pattern: int, rows: int, cols: int) -> Tensor:
    p = pattern_of(pattern)
    _check_input(grad, p.out_channels, "grad")
    _checked("grad", grad, (grad.shape[0], p.out_channels, *p.window.output_size(rows, cols)), grad.dtype)
    present = _present(weight, p, grad.dtype)
    dx = empty_travel((grad.shape[0], p.in_channels, rows, cols), grad)
    plan = p.plan("input_gradient", rows, cols)
    native.call("forward", grad.dtype, plan, to_travel(grad), present, None, dx, grad.shape[0])
    return dx


def _weight_gradient_(out: Tensor, x: Tensor, grad: Tensor, pattern: int) -> None:
    p = pattern_of(pattern)
    _check_input(x, p.in_channels, "x")
    _checked("grad", grad, _output_shape(x, p), x.dtype)
    _checked("out", out, tuple(p.mask.shape), x.dtype)
    if not out.is_contiguous():
        raise ValueError("out must be contiguous")
    plan = p.plan("weight_gradient", x.shape[2], x.shape[3])
    positions = p.positions("weight_gradient")
    gradient = x.new_zeros(positions.numel())
    native.call("weight_gradient", x.dtype, plan, to_travel(x), to_travel(grad), gradient, x.shape[0])
    native.call("scatter", x.dtype, gradient, positions, positions.numel(), out)


def _weight_gradient(x: Tensor, grad: Tensor, pattern: int) -> Tensor:
    out = x.new_zeros(pattern_of(pattern).mask.shape)
    _weight_gradient_(out, x, grad, pattern)
    return out


_KERNELS = SimpleNamespace(
    sparse_forward=_forward,
    sparse_input_gradient=_input_gradient,
    sparse_weight_gradient=_weight_gradient,
    sparse_weight_gradient_=_weight_gradient_,
)
for _name, _function in vars(_KERNELS).items():
    _library.impl(_name, _function, "CPU")


def operators() -> Any:
    """The kernels themselves, or the registered operators where somebody watches dispatch (FLOP counters, tracing).

    Going through torch's dispatcher costs more than a small layer's whole work.
    """
    return torch.ops.regrow if torch._C._len_torch_dispatch_stack() else _KERNELS


@torch.library.register_fake("regrow::sparse_forward", lib=_library)
def _(x: Tensor, weight: Tensor, bias: Tensor | None, pattern: int) -> Tensor:
    return empty_travel(_output_shape(x, pattern_of(pattern)), x)


@torch.library.register_fake("regrow::sparse_input_gradient", lib=_library)
def _(grad: Tensor, weight: Tensor, pattern: int, rows: int, cols: int) -> Tensor:
    return empty_travel((grad.shape[0], pattern_of(pattern).in_channels, rows, cols), grad)


@torch.library.register_fake("regrow::sparse_weight_gradient", lib=_library)
def _(x: Tensor, grad: Tensor, pattern: int) -> Tensor:
    return x.new_empty(pattern_of(pattern).mask.shape)


@torch.library.register_fake("regrow::sparse_weight_gradient_", lib=_library)
def _(out: Tensor, x: Tensor, grad: Tensor, pattern: int) -> None:
    return None


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, weight, bias, ctx.pattern = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _backward(ctx: Any, grad: Tensor) -> tuple:
    x, weight = ctx.saved_tensors
    need_x, need_weight, need_bias, _ = ctx.needs_input_grad
    ops = torch.ops.regrow
    return (
        ops.sparse_input_gradient(grad, weight, ctx.pattern, x.shape[2], x.shape[3]) if need_x else None,
        ops.sparse_weight_gradient(x, grad, ctx.pattern) if need_weight else None,
        grad.sum((0, 2, 3)) if ctx.has_bias and need_bias else None,
        None,
    )


torch.library.register_autograd("regrow::sparse_forward", _backward, setup_context=_setup_context, lib=_library)


def _flops(nnz: int, samples: int, rows: int, cols: int) -> int:
    return 2 * nnz * math.prod((samples, rows, cols))


@register_flop_formula(torch.ops.regrow.sparse_forward)
def _(x: Any, weight: Any, bias: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    p = pattern_of(pattern)
    return _flops(p.nnz, x[0], *p.window.output_size(x[2], x[3]))


@register_flop_formula(torch.ops.regrow.sparse_input_gradient)
def _(grad: Any, weight: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).nnz, grad[0], *grad[2:])


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient)
def _(x: Any, grad: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).gradient_nnz, grad[0], *grad[2:])


@register_flop_formula(torch.ops.regrow.sparse_weight_gradient_)
def _(out: Any, x: Any, grad: Any, pattern: int, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return _flops(pattern_of(pattern).gradient_nnz, grad[0], *grad[2:])
