"""Signals that ask a program to end: SIGINT (Ctrl-C) and SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def on_request_to_end(answer: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Answer them in place of whoever did before, and give them back."""
    before = {number: signal.signal(number, answer) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
