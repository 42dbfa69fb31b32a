"""Parameters that change their size, and passes of other threads that must not meet them while they do."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class _Gate:
    """Passes go in together; a change waits until the passes of other threads are out, and keeps new ones waiting."""

    def __init__(self) -> None:
        self.turn = threading.Condition()
        self.inside: Counter[int] = Counter()
        self.changes: list[int] = []

    def is_free(self, me: int) -> bool:
        """Whether no other thread changes anything."""
        return not self.changes or self.changes[0] == me

    def is_empty(self, me: int) -> bool:
        """Whether no other thread is inside either."""
        return self.is_free(me) and not any(count for thread, count in self.inside.items() if thread != me)


_gate = _Gate()
os.register_at_fork(after_in_child=_gate.__init__)  # type: ignore[misc]  # a child has none of its parent's other threads


@contextlib.contextmanager
def still() -> Iterator[None]:
    """Inside, no other thread changes the size of compact weights: a pass reads weights and positions of one topology."""
    me = threading.get_ident()
    with _gate.turn:
        _gate.turn.wait_for(lambda: _gate.is_free(me))
        _gate.inside[me] += 1
    try:
        yield
    finally:
        with _gate.turn:
            _gate.inside[me] -= 1
            if not _gate.inside[me]:
                del _gate.inside[me]
            _gate.turn.notify_all()


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Inside, weights and positions may be replaced one after the other: no other thread sees them in between."""
    me = threading.get_ident()
    with _gate.turn:
        _gate.turn.wait_for(lambda: _gate.is_empty(me))
        _gate.changes.append(me)
    try:
        yield
    finally:
        with _gate.turn:
            _gate.changes.pop()
            _gate.turn.notify_all()


def resize(parameter: nn.Parameter, values: Tensor) -> None:
    """Let a parameter hold other values, of any size; a backward pass through the old ones is refused from now on."""
    parameter.grad = None
    # Autograd remembers a parameter's size until its type changes.
    parameter.data = torch.empty(0, dtype=torch.float64 if values.dtype != torch.float64 else torch.float32)
    parameter.data = values
    torch.autograd.graph.increment_version(parameter)
