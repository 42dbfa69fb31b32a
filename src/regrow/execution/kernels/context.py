"""What torch hands to both passes of an autograd function, in types; and a backward pass that says that it has no derivative itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

_TWICE = "sparse kernels have first derivatives only: call handle.densify() before you differentiate twice (gradient penalties)"
_BATCHED = "sparse kernels take one gradient at a time: call handle.densify() before you differentiate with is_grads_batched or vectorize"


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
        if any(grad is not None and torch._C._functorch.is_legacy_batchedtensor(grad) for grad in grads):
            raise RuntimeError(_BATCHED)
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        seen = _Read(ctx)
        with torch.no_grad():
            found = backward(seen, *grads)
        outputs = found if isinstance(found, tuple) else (found,)
        return _Refusing.apply(len(outputs), *outputs, *grads, *seen.saved_tensors, getattr(ctx, "origin", None))

    return once


def keep_origin(ctx: Any, given: Tensor, used: Tensor) -> None:
    """Where a copy of an input is saved instead of it: keep its place in the graph, not its memory, for the error above."""
    if used is not given and given.requires_grad:
        with torch.enable_grad():
            ctx.origin = given.as_strided((0,), (1,)).clone()


def refuse_twice(ctx: Any, *grads: Tensor) -> NoReturn:
    """The backward pass of an operator that is one itself: torch would only warn, and give zeros."""
    raise RuntimeError(_TWICE)


class _Read:
    """A context whose saved tensors are unpacked once: checkpointing does not give them twice."""

    def __init__(self, ctx: Any) -> None:
        self.saved_tensors, self._ctx = ctx.saved_tensors, ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _Refusing(torch.autograd.Function):
    """Pass gradients on; an error for whoever differentiates them by anything they were computed from."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tensors[:count]

    backward = staticmethod(refuse_twice)
