"""Optimizer steps that touch present weights only, with torch's arithmetic; missing entries stay as they are.

The dense-shaped step of a large sparse layer costs more than its sparse passes; these cost O(non-zeros).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from regrow.execution import native
from regrow.execution.pattern import SparsePattern


class _SgdOptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("lr", "momentum", "dampening", "weight_decay")] + [
        (name, ctypes.c_int) for name in ("nesterov", "maximize", "first_step")
    ]


class _AdamOptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "step")] + [
        ("maximize", ctypes.c_int)
    ]


def _checked(pattern: SparsePattern, **tensors: Tensor | None) -> None:
    weight = tensors["weight"]
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.shape != pattern.mask.shape or not tensor.is_contiguous():
            raise ValueError(
                f"{name} must be contiguous with shape {tuple(pattern.mask.shape)}, got {tuple(tensor.shape)}"
            )
        if tensor.dtype != weight.dtype or tensor.device.type != "cpu":
            raise TypeError(f"{name} must be {weight.dtype} on the CPU, got {tensor.dtype} on {tensor.device}")


def sgd_step(
    weight: Tensor,
    grad: Tensor,
    momentum_buffer: Tensor | None,
    pattern: SparsePattern,
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
    first_step: bool = False,
) -> None:
    """One step of `torch.optim.SGD` on the present entries, in place.

    Args:
        momentum_buffer: velocity, dense-shaped; None only if `momentum` is 0.
        first_step: the velocity starts as the gradient, as torch does when it creates the buffer.
    """
    _checked(pattern, weight=weight, grad=grad, momentum_buffer=momentum_buffer)
    if momentum and momentum_buffer is None:
        raise ValueError("momentum needs a momentum_buffer shaped like the weight")
    options = _SgdOptions(lr, momentum, dampening, weight_decay, nesterov, maximize, first_step)
    positions = pattern.positions()
    native.call("sgd", weight.dtype, ctypes.byref(options), weight, grad, momentum_buffer, positions, positions.numel())


def adamw_step(
    weight: Tensor,
    grad: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    pattern: SparsePattern,
    *,
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
    maximize: bool = False,
) -> None:
    """One step of `torch.optim.AdamW` (number `step`, from 1) on the present entries, in place."""
    _checked(pattern, weight=weight, grad=grad, exp_avg=exp_avg, exp_avg_sq=exp_avg_sq)
    if step < 1:
        raise ValueError(f"step counts from 1, got {step}")
    options = _AdamOptions(lr, *betas, eps, weight_decay, step, maximize)
    positions = pattern.positions()
    native.call(
        "adamw", weight.dtype, ctypes.byref(options), weight, grad, exp_avg, exp_avg_sq, positions, positions.numel()
    )


def steps_natively(optimizer: Optimizer) -> bool:
    """Whether the optimizer's arithmetic is one of those above: exactly SGD or AdamW, without loss scaling inside the step."""
    return type(optimizer) in _STEPS and getattr(optimizer, "grad_scale", None) is None


def step_present(optimizer: Optimizer, parameter: nn.Parameter, group: dict[str, Any], pattern: SparsePattern) -> bool:
    """What `optimizer.step()` would do to the present weights of `parameter`; False, changing nothing, if only torch can."""
    grad = parameter.grad
    if grad is None or parameter.dtype not in native.SUFFIX or isinstance(group["lr"], Tensor) or group.get("amsgrad"):
        return False
    if not all(_plain(tensor, parameter) for tensor in (parameter, grad, *_remembered(optimizer, parameter))):
        return False
    _STEPS[type(optimizer)](parameter.detach(), grad, optimizer.state[parameter], group, pattern)
    # Native code writes behind autograd's back; a backward through the old weights must still be refused.
    torch.autograd.graph.increment_version(parameter)
    return True


def _remembered(optimizer: Optimizer, parameter: nn.Parameter) -> list[Tensor]:
    """What the optimizer keeps of each weight; not its counters."""
    state = optimizer.state.get(parameter, {})
    return [value for value in state.values() if isinstance(value, Tensor) and value.dim() > 0]


def _plain(tensor: Tensor, parameter: nn.Parameter) -> bool:
    """Whether native code can walk the tensor beside the weight."""
    return tensor.is_contiguous() and tensor.dtype == parameter.dtype and tensor.device.type == "cpu"


def _sgd(weight: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any], pattern: SparsePattern) -> None:
    first = group["momentum"] != 0 and state.get("momentum_buffer") is None
    if first:
        state["momentum_buffer"] = torch.zeros_like(weight)
    options = {key: group[key] for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")}
    sgd_step(weight, grad, state.get("momentum_buffer"), pattern, first_step=first, **options)


def _adamw(weight: Tensor, grad: Tensor, state: dict[str, Any], group: dict[str, Any], pattern: SparsePattern) -> None:
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    state["step"] += 1
    options = {key: group[key] for key in ("lr", "betas", "eps", "weight_decay", "maximize")}
    adamw_step(weight, grad, state["exp_avg"], state["exp_avg_sq"], pattern, step=int(state["step"]), **options)


_STEPS: dict[type, Callable[..., None]] = {SGD: _sgd, AdamW: _adamw}
