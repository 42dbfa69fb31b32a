"""What passed since the last row, evaluation and checkpoints included: time, steps, images."""

from __future__ import annotations

import time
from collections.abc import Callable


class Lap:
    """Counts steps and images together with the time they were done in, so that rates of whole runs can be told.

    A resumed process counts from its own start: its first row holds its own steps and seconds, not those of the process before.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, processor: Callable[[], float] = time.process_time
    ) -> None:
        self._clock, self._processor = clock, processor
        self.restart()

    def restart(self) -> None:
        """Forget what was counted; time counts from now on."""
        self._began, self._spent = self._clock(), self._processor()
        self._steps = self._images = 0

    def count(self, images: int) -> None:
        """One step is done."""
        self._steps += 1
        self._images += images

    def row(self) -> dict[str, float]:
        """Seconds by the clock and of the processor, steps and images since the last row."""
        row = {
            "seconds": self._clock() - self._began,
            "processor_seconds": self._processor() - self._spent,
            "steps": self._steps,
            "images": self._images,
        }
        self.restart()
        return row
