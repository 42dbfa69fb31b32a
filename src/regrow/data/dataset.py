"""What every data set offers to a training loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from regrow.data.epoch import Epoch, count_steps

if TYPE_CHECKING:
    from torch import Tensor


class Dataset(ABC):
    """One split of labelled images that hands out whole batches, at any position of any epoch.

    Attributes:
        name: of the data set.
        split: `train`, `val`, `test` or `train+val`.
        shape: of one image (channels, height, width).
        class_names: one per label.
        shuffle: whether each epoch has an order of its own; true for training splits.

    Example:
        >>> from regrow import data
        >>> train = data.load("mnist-sample", "train")
        >>> images, labels = next(train.batches(epoch=0, batch_size=100, seed=1))
        >>> images.shape, len(train), train.steps_per_epoch(100)
        (torch.Size([100, 1, 28, 28]), 3600, 36)
    """

    name: str
    split: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    shuffle: bool

    @property
    def num_classes(self) -> int:
        """How many labels there are."""
        return len(self.class_names)

    @property
    @abstractmethod
    def labels(self) -> np.ndarray:
        """The label of each sample."""

    @property
    def majority(self) -> float:
        """Share of the most frequent class: the accuracy of naming it always."""
        return float(np.bincount(self.labels).max() / len(self))

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    def steps_per_epoch(self, batch_size: int) -> int:
        """Batches in an epoch; a smaller last batch counts."""
        return count_steps(len(self), batch_size)

    def batches(
        self,
        epoch: int = 0,
        batch_size: int = 100,
        seed: int = 0,
        start_step: int = 0,
        rank: int = 0,
        world: int = 1,
        samples_innermost: bool = False,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of one epoch: float32 images, normalised and where asked augmented, and int64 labels.

        Order and augmentation depend on (seed, epoch, sample) alone: `start_step` continues an epoch exactly where it
        was left, and all ranks together see the batches that a single process would see.

        Args:
            epoch: number of the epoch.
            batch_size: of the global batch, which the ranks share.
            seed: of the run.
            start_step: first step to produce.
            rank: number of this process.
            world: number of processes.
            samples_innermost: images may lie in memory as sparse kernels like them, where that costs nothing.
        """
        # Not a generator itself: wrong arguments are reported at the call, not at the first batch.
        course = Epoch(len(self), batch_size, epoch, seed, start_step, rank, world, self.shuffle)
        return self._produce(course, samples_innermost)

    @abstractmethod
    def _produce(self, course: Epoch, samples_innermost: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of an epoch."""

    def problems(self, quick: bool = False) -> list[str]:
        """What is wrong with files that are read later on; a quick look does not decode those that are plainly whole."""
        return []

    def __repr__(self) -> str:
        """Name, split and sizes."""
        shape = "x".join(map(str, self.shape))
        return (
            f"{type(self).__name__}({self.name} {self.split}: {len(self)} images {shape}, {self.num_classes} classes)"
        )
