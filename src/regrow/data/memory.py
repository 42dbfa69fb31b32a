"""Data sets that live in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from regrow.data.arrays import LabelledImages, Normalisation
from regrow.data.augment import CropFlip
from regrow.data.dataset import Dataset
from regrow.data.epoch import Epoch
from regrow.execution.kernels.layout import chwn_strides
from regrow.native import available, call
from regrow.native.records import ImageBatch


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

    @property
    def labels(self) -> np.ndarray:
        """The label of each sample."""
        return self._labels.numpy()

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._labels)

    def _produce(self, course: Epoch, samples_innermost: bool) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.from_numpy(course.order())
        labels = self._labels.index_select(0, order)
        outcomes = self._augment.choose(len(self), course.seed, course.epoch) if self._augment else None
        native = outcomes is None and self._images.dtype == torch.uint8 and available()
        for start, stop in course:
            chosen = order[start:stop]
            outcome = None if outcomes is None else outcomes.index_select(0, chosen)
            images = self._load(chosen, samples_innermost) if native else self._make(chosen, outcome)
            yield images, labels[start:stop]

    def _make(self, chosen: Tensor, outcome: Tensor | None) -> Tensor:
        images = self._images.index_select(0, chosen)
        if self._augment is not None and outcome is not None:
            images = self._augment(images, outcome)
        return self._affine(images)

    def _load(self, chosen: Tensor, samples_innermost: bool) -> Tensor:
        """The same numbers in one native pass."""
        shape = (len(chosen), *self.shape)
        made = torch.empty_strided(shape, chwn_strides(shape)) if samples_innermost else torch.empty(shape)
        sizes = (len(chosen), self.shape[0], self.shape[1] * self.shape[2])
        tensors = (self._images, chosen), (self._affine.scale, self._affine.shift, made)
        first, last = ([tensor.data_ptr() for tensor in group] for group in tensors)
        call("load_images", torch.float32, ctypes.byref(ImageBatch(*first, *sizes, *last, samples_innermost)))
        return made
