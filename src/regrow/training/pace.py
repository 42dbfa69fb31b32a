"""Images per second of training steps alone: start-up, evaluation and checkpoints do not count."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 5.0


@dataclass
class Span:
    """Seconds of some steps and the images in them."""

    seconds: float = 0.0
    images: int = 0

    def add(self, seconds: float, images: int) -> None:
        """Count one step; a negative one is taken back."""
        self.seconds += seconds
        self.images += images

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.images / max(self.seconds, 1e-9)


class Pace:
    """Counts images and the seconds of their steps, data loading included.

    The first step of a process builds lists and fills caches: it counts only where no other step did.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mark = clock()
        self._first: Span | None = None
        self._row, self._window = Span(), Span()
        self._recent: deque[tuple[float, int]] = deque()

    def skip(self) -> None:
        """Leave out the time since the last step: something else than training happened."""
        self._mark = self._clock()

    def count(self, images: int) -> None:
        """One step is done."""
        now = self._clock()
        seconds, self._mark = now - self._mark, now
        if self._first is None:
            self._first = Span(seconds, images)
            return
        self._row.add(seconds, images)
        self._window.add(seconds, images)
        self._recent.append((seconds, images))
        while len(self._recent) > 1 and self._window.seconds > WINDOW:
            oldest, shown = self._recent.popleft()
            self._window.add(-oldest, -shown)

    @property
    def recent(self) -> float | None:
        """Images per second over the last seconds; None before any step."""
        if self._recent:
            return self._window.rate
        return None if self._first is None else self._first.rate

    def row(self) -> Span | None:
        """The steps since the last row; None if there were none."""
        row, self._row = self._row, Span()
        if row.images:
            return row
        return None if self._recent else self._first
