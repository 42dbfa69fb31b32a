"""Optimizer steps that touch present weights only, with torch's arithmetic; missing entries stay as they are.

The dense-shaped step of a large sparse layer costs more than its sparse passes; these cost O(non-zeros), all layers in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from regrow import native
from regrow.native.records import AdamWStep, SgdStep
from regrow.support import Support


def _pointers(support: Support, *tensors: Tensor | None) -> tuple[int | None, ...]:
    index = (
        None if support.is_compact else support.positions.data_ptr()
    )  # without missing weights there is nothing to skip
    return *(None if t is None else native.address(t) for t in tensors), index, support.nnz


def _run(dtype: torch.dtype, steps: list[Any]) -> None:
    native.call(type(steps[0]).function, dtype, (type(steps[0]) * len(steps))(*steps), len(steps))


def steps_natively(optimizer: Optimizer) -> bool:
    """Whether the optimizer's arithmetic is one of those above: exactly SGD or AdamW, without loss scaling inside the step."""
    return type(optimizer) in _STEPS and getattr(optimizer, "grad_scale", None) is None


def step_present(optimizer: Optimizer, layers: Iterable[tuple[nn.Parameter, dict[str, Any], Support]]) -> list[bool]:
    """What `optimizer.step()` would do to the present weights of these parameters, each with its group and support.

    Returns which were updated; to the others nothing happened, as only torch can step them.
    """
    steps: dict[torch.dtype, list[Any]] = {}
    stepped, flags = [], []
    for parameter, group, support in layers:
        flags.append(_can_step(optimizer, parameter, group))
        if flags[-1]:
            record = _STEPS[type(optimizer)](parameter, optimizer.state[parameter], group, support)
            steps.setdefault(parameter.dtype, []).append(record)
            stepped.append(parameter)
    for dtype, alike in steps.items():
        _run(dtype, alike)
    # Native code writes behind autograd's back; a backward through the old weights must still be refused.
    torch.autograd.graph.increment_version(stepped)
    return flags


def _can_step(optimizer: Optimizer, parameter: nn.Parameter, group: dict[str, Any]) -> bool:
    if parameter.grad is None or isinstance(group["lr"], Tensor) or group.get("amsgrad"):
        return False
    beside = (parameter, parameter.grad, *optimizer.state[parameter].values())
    return all(_plain(value, parameter) for value in beside)


def _plain(value: Any, parameter: nn.Parameter) -> bool:
    """Whether native code can walk a tensor beside the weight; counters and what is not a tensor do not matter."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return True
    alike = value.shape == parameter.shape and value.dtype == parameter.dtype in native.SUFFIX
    return alike and value.is_contiguous() and value.is_cpu


def _sgd(weight: Tensor, state: dict[str, Any], group: dict[str, Any], support: Support) -> SgdStep:
    velocity = state.get("momentum_buffer")
    first = group["momentum"] != 0 and velocity is None
    if first:
        velocity = state["momentum_buffer"] = torch.zeros_like(weight, requires_grad=False)
    options = (group[key] for key in ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"))
    return SgdStep(*options, first, *_pointers(support, weight, weight.grad, velocity))


def _adamw(weight: Tensor, state: dict[str, Any], group: dict[str, Any], support: Support) -> AdamWStep:
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weight, requires_grad=False) for _ in range(2))
    state["step"] += 1
    options = (group["lr"], *group["betas"], group["eps"], group["weight_decay"], int(state["step"]), group["maximize"])
    return AdamWStep(*options, *_pointers(support, weight, weight.grad, state["exp_avg"], state["exp_avg_sq"]))


_STEPS: dict[type, Callable[..., Any]] = {SGD: _sgd, AdamW: _adamw}
