"""Labelled images as arrays: one form for all, checks, hold-out rules, statistics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regrow.data.bounds import MOST_CLASSES
from regrow.data.errors import DataError


@dataclass(frozen=True)
class LabelledImages:
    """Images [n, channels, height, width], uint8 or float32, and their labels [n], int64."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.labels)

    def take(self, chosen: np.ndarray | slice) -> LabelledImages:
        """Some of the samples."""
        return LabelledImages(self.images[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Normalisation:
    """(value * unit - mean) / std per channel; `unit` is 1/255 for uint8 images."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what cannot normalise."""
        if len(self.mean) != len(self.std) or not all(std > 0 for std in self.std):
            raise DataError(
                f"normalisation needs a mean and a positive std for every channel, got {self.mean} and {self.std}"
            )

    @staticmethod
    def of(samples: LabelledImages) -> Normalisation:
        """Mean and standard deviation of the samples themselves, for data without published ones."""
        moments = [_moments(samples.images[:, channel]) for channel in range(samples.images.shape[1])]
        return Normalisation(tuple(mean for mean, _ in moments), tuple(std or 1.0 for _, std in moments))


def _moments(values: np.ndarray) -> tuple[float, float]:
    if values.dtype != np.uint8:
        return float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    counts = np.bincount(values.reshape(-1), minlength=256)
    levels = np.arange(256) / 255
    mean = float(np.average(levels, weights=counts))
    return mean, float(np.sqrt(np.average((levels - mean) ** 2, weights=counts)))


def labelled_images(images: np.ndarray, labels: np.ndarray, origin: str) -> LabelledImages:
    """Check a pair of arrays and bring it to the common form.

    Args:
        images: [n, features] (rows of a table), [n, h, w], [n, h, w, c] or [n, c, h, w] with 1, 3 or 4 channels; uint8 or floating point.
        labels: [n], integers from 0.
        origin: named in errors.
    """
    images = _channels_first(images, origin)
    if images.dtype != np.uint8:
        if not np.issubdtype(images.dtype, np.floating):
            raise DataError(f"{origin}: images must be uint8 or floating point, not {images.dtype}")
        images = images.astype(np.float32)
        if not np.isfinite(images).all():
            raise DataError(f"{origin}: images contain NaN or infinity")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{origin}: labels must be integers of shape [n], not {labels.dtype} of shape {labels.shape}")
    if len(images) != len(labels):
        raise DataError(f"{origin}: {len(images)} images but {len(labels)} labels")
    if not len(labels):
        raise DataError(f"{origin}: there are no samples")
    if labels.min() < 0:
        raise DataError(f"{origin}: label {labels.min()} at index {labels.argmin()} is negative; labels count from 0")
    if labels.max() >= MOST_CLASSES:
        raise DataError(
            f"{origin}: label {labels.max()} at index {labels.argmax()} asks for more than {MOST_CLASSES:,} classes; labels count from 0"
        )
    return LabelledImages(images, labels.astype(np.int64))


def _channels_first(images: np.ndarray, origin: str) -> np.ndarray:
    if images.ndim == 2:
        return images[:, None, None]
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3, 4):
        return images.transpose(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in (1, 3, 4):
        return images
    raise DataError(
        f"{origin}: images must be [n, features], [n, height, width], [n, height, width, channels] or [n, channels, height, width] "
        f"with 1, 3 or 4 channels, not {list(images.shape)}"
    )


def hold_out_tail(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The papers' fixed split: the first 90% to train on, the last 10% to validate."""
    boundary = len(labels) - len(labels) // 10
    return np.arange(boundary), np.arange(boundary, len(labels))


def hold_out_per_class(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last 10% of every class (at least one sample of each class that has two): safe for data sorted by class."""
    held = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) > 1:
            held[members[-max(1, len(members) // 10) :]] = True
    return np.flatnonzero(~held), np.flatnonzero(held)
