"""What passed since the last row, evaluation and checkpoints included: time, steps, images, gradient traffic."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Traffic(Protocol):
    """Bytes handed over to be averaged since the process began, and what plain data parallelism would have handed over."""

    sent: int
    dense: int


class Lap:
    """Counts steps and images together with the time they were done in, so that rates of whole runs can be told.

    A resumed process counts from its own start: its first row holds its own steps and seconds, not those of the process before.
    """

    def __init__(
        self,
        traffic: Traffic | None = None,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        self._traffic, self._clock, self._processor = traffic, clock, processor
        self.restart()

    def restart(self) -> None:
        """Forget what was counted; time counts from now on."""
        self._began, self._spent = self._clock(), self._processor()
        self._steps = self._images = 0
        if self._traffic is not None:
            self._sent, self._dense = self._traffic.sent, self._traffic.dense

    def count(self, images: int) -> None:
        """One step is done."""
        self._steps += 1
        self._images += images

    def row(self) -> dict[str, float]:
        """Seconds by the clock and of the processor, steps and images since the last row; with several processes bytes per step."""
        row = {
            "seconds": self._clock() - self._began,
            "processor_seconds": self._processor() - self._spent,
            "steps": self._steps,
            "images": self._images,
            **self._bytes_per_step(),
        }
        self.restart()
        return row

    def _bytes_per_step(self) -> dict[str, float]:
        if self._traffic is None:
            return {}
        steps = max(1, self._steps)
        return {
            "bytes_per_step": (self._traffic.sent - self._sent) / steps,
            "bytes_per_step_dense": (self._traffic.dense - self._dense) / steps,
        }
