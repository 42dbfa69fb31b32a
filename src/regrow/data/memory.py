"""Data sets that live in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from regrow.data.arrays import LabelledImages, Normalisation
from regrow.data.augment import CropFlip
from regrow.data.dataset import Dataset
from regrow.data.plan import EpochPlan
from regrow.execution.layout import travel_strides
from regrow.execution.native import available, call


class Affine:
    """Normalisation of a batch [n, channels, height, width]: float(x) * scale + shift."""

    def __init__(self, normalisation: Normalisation, dtype: torch.dtype) -> None:
        unit = 1 / 255 if dtype == torch.uint8 else 1.0
        mean, std = (np.array(v).reshape(-1, 1, 1) for v in (normalisation.mean, normalisation.std))
        self.scale, self.shift = (torch.from_numpy(v).float() for v in (unit / std, -mean / std))

    def __call__(self, images: Tensor) -> Tensor:
        """The normalised batch, a new tensor in the memory format of the images."""
        # Not addcmul: with broadcast operands it is not vectorised and takes four to twenty times as long.
        return images.float().mul_(self.scale).add_(self.shift)


class ArrayDataset(Dataset):
    """A data set that lives in memory; images stay uint8 until their batch is made."""

    def __init__(
        self,
        samples: LabelledImages,
        normalisation: Normalisation,
        *,
        name: str,
        split: str,
        class_names: tuple[str, ...],
        augment: bool = False,
        shuffle: bool = True,
    ) -> None:
        self.name, self.split, self.class_names, self.shuffle = name, split, class_names, shuffle
        # torch warns of arrays that may not be written to: those are copied.
        self._images = torch.from_numpy(np.require(samples.images, requirements=["C", "W"]))
        self._labels = torch.from_numpy(np.require(samples.labels, requirements=["C", "W"]))
        channels, height, width = self._images.shape[1:]
        self.shape = (channels, height, width)
        self._augment = CropFlip(height, width) if augment else None
        self._affine = Affine(normalisation, self._images.dtype)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._labels)

    def _produce(self, plan: EpochPlan, samples_innermost: bool) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.from_numpy(plan.order())
        outcomes = self._augment.choose(len(self), plan.seed, plan.epoch) if self._augment else None
        native = samples_innermost and outcomes is None and self._images.dtype == torch.uint8 and available()
        for start, stop in plan:
            chosen = order[start:stop]
            images = self._images.index_select(0, chosen)
            outcome = None if outcomes is None else outcomes.index_select(0, chosen)
            yield self._load(images) if native else self._make(images, outcome), self._labels.index_select(0, chosen)

    def _make(self, images: Tensor, outcome: Tensor | None) -> Tensor:
        if self._augment is not None and outcome is not None:
            images = self._augment(images, outcome)
        return self._affine(images)

    def _load(self, images: Tensor) -> Tensor:
        """The same numbers, samples innermost, in one native pass."""
        samples, channels, height, width = images.shape
        made = torch.empty_strided(images.shape, travel_strides(images.shape))
        sizes, affine = (samples, channels, height * width), self._affine
        call("load_images", torch.float32, images, *sizes, affine.scale, affine.shift, made)
        return made
