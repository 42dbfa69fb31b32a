"""What torch hands to both passes of an autograd function, in types; and a backward pass that says that it has no derivative itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

_TWICE = b"sparse kernels have first derivatives only: call handle.densify() before you differentiate twice (gradient penalties)"


class Context(Protocol):
    """The part every function uses, which torch's own types lack; each adds what its forward keeps for its backward."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...  # noqa: D102


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Let gradients, where a graph of them is wanted, raise an error when they are differentiated.

    Torch's decorator of this name does so only if the incoming gradient has a graph; that of ``y.sum()`` has none, and a penalty on the
    gradient of the input would be lost in silence.
    """

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Tensor | None) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():
            return found
        outputs = found if isinstance(found, tuple) else (found,)
        shown = (None if each is None else each.detach().requires_grad_() for each in outputs)
        return torch._C._functions.DelayedError(_TWICE, len(outputs))(*shown)  # type: ignore[arg-type]  # None passes too

    return once
