"""Which samples make which batch: a pure function of (seed, epoch, step, rank).

The **global batch** of a step is what all ranks train on together: its samples do not depend on the number of ranks.
Rank r of w takes the r-th of w consecutive parts, whose sizes differ by at most one; where they differ, the mean over
ranks of their mean losses is not quite the mean over the global batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from regrow.data import draws


def count_steps(samples: int, batch_size: int) -> int:
    """Batches in an epoch; a smaller last batch is one of them.

    >>> count_steps(45_000, 128)
    352
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    return -(-samples // batch_size)


@dataclass(frozen=True)
class Epoch:
    """One epoch as seen by one rank.

    Iterating yields, per step from `start_step` on, the bounds of this rank's part in `order()`.

    Attributes:
        samples: size of the data set.
        batch_size: of the global batch.
        epoch: number of the epoch, part of every random draw.
        seed: of the run, part of every random draw.
        start_step: steps to skip, as when a run is resumed inside an epoch.
        rank: number of this process.
        world: number of processes.
        shuffle: a new random order in each epoch, or the stored order.
    """

    samples: int
    batch_size: int
    epoch: int = 0
    seed: int = 0
    start_step: int = 0
    rank: int = 0
    world: int = 1
    shuffle: bool = True

    def __post_init__(self) -> None:
        """Check the numbers against each other."""
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank must be in 0 .. world - 1 = {self.world - 1}, not {self.rank}")
        if not 0 <= self.start_step <= self.steps:
            raise ValueError(f"start_step must be in 0 .. {self.steps} (the steps of an epoch), not {self.start_step}")
        last = self.samples - (self.steps - 1) * self.batch_size
        if self.shuffle and self.steps and min(last, self.batch_size) < self.world:
            raise ValueError(
                f"a batch of {min(last, self.batch_size)} samples cannot be shared by {self.world} ranks: change "
                f"batch_size (now {self.batch_size}, for {self.samples} samples)"
            )

    @property
    def steps(self) -> int:
        """Steps of the whole epoch."""
        return count_steps(self.samples, self.batch_size)

    def order(self) -> np.ndarray:
        """The samples in the order of this epoch, all ranks together."""
        if not self.shuffle:
            return np.arange(self.samples)
        return draws.permutation(self.samples, self.seed, draws.ORDER, self.epoch)

    def bounds(self, step: int) -> tuple[int, int]:
        """Start and end of this rank's share of the batch of `step`, as positions in `order()`."""
        start = step * self.batch_size
        size = min(self.batch_size, self.samples - start)
        return start + size * self.rank // self.world, start + size * (self.rank + 1) // self.world

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Bounds of the remaining steps."""
        return map(self.bounds, range(self.start_step, self.steps))
