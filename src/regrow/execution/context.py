"""What torch hands to both passes of an autograd function, in types: its own have neither saved tensors nor attributes."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Context(Protocol):
    """The part every function uses; each adds what its forward keeps for its backward."""

    needs_input_grad: tuple[bool, ...]
    saved_tensors: tuple[Tensor | None, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...  # noqa: D102
