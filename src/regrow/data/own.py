"""The user's own arrays: a folder of IDX files, or one `.npz` file."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import numpy as np

from regrow.data.archive import read_arrays
from regrow.data.arrays import LabelledImages, labelled_images
from regrow.data.errors import DataError
from regrow.data.idx import read_idx
from regrow.errors import RegrowWarning

Parts = dict[str, LabelledImages]

_IDX_PARTS = {"train": ("train",), "val": ("val", "valid"), "test": ("t10k", "test")}
_NPZ_KEYS: dict[str, tuple[tuple[str, str], ...]] = {
    "train": (
        ("x_train", "y_train"),
        ("X_train", "y_train"),
        ("train_images", "train_labels"),
        ("images", "labels"),
        ("x", "y"),
        ("X", "y"),
    ),
    "val": (("x_val", "y_val"), ("X_val", "y_val"), ("val_images", "val_labels")),
    "test": (("x_test", "y_test"), ("X_test", "y_test"), ("test_images", "test_labels")),
}


def holds_idx(folder: Path) -> bool:
    """Whether a folder looks like a set of IDX files."""
    return _find_idx(folder, "train", "images") is not None


def read_idx_folder(folder: Path) -> Parts:
    """Parts named as MNIST names them: `*train-images*`, `*train-labels*`, `*t10k-...` or `*test-...`, `*val-...`."""
    parts: Parts = {}
    for part in _IDX_PARTS:
        images, labels = (_find_idx(folder, part, what) for what in ("images", "labels"))
        if images is None and labels is None:
            continue
        if images is None or labels is None:
            raise DataError(f"{folder}: has {(images or labels)} but not the {'labels' if images else 'images'} to it")
        parts[part] = labelled_images(read_idx(images), read_idx(labels), f"{images} and {labels.name}")
    return _checked(parts, str(folder))


def _find_idx(folder: Path, part: str, what: str) -> Path | None:
    for prefix in _IDX_PARTS[part]:
        found = sorted(path for path in folder.glob(f"*{prefix}-{what}*") if path.is_file())
        if len(found) > 1:
            raise DataError(f"{folder}: more than one file of {prefix}-{what}: {', '.join(p.name for p in found)}")
        if found:
            return found[0]
    return None


def read_npz(path: Path) -> Parts:
    """`x_train, y_train, x_val, y_val, x_test, y_test`; or `X_train, ...`; or `train_images, ...`; or `images, labels`, or `X, y`."""
    arrays = read_arrays(path, {name for pairs in _NPZ_KEYS.values() for pair in pairs for name in pair})
    parts: Parts = {}
    for part, pairs in _NPZ_KEYS.items():
        for images, labels in pairs:
            pixels, classes = arrays.get(images), arrays.get(labels)
            if pixels is not None and classes is not None:
                parts[part] = labelled_images(pixels, classes, f"{path}: {images}, {labels}")
                break
    if "train" not in parts:
        expected = " or ".join(f"{images}, {labels}" for images, labels in _NPZ_KEYS["train"])
        raise DataError(f"{path}: has no training arrays; expected {expected}, found {', '.join(arrays) or 'nothing'}")
    _refuse_misspelt(arrays, path)
    return _checked(parts, str(path))


def _refuse_misspelt(arrays: Collection[str], path: Path) -> None:
    """An array that is nearly one of ours, or half of a pair, would be left out in silence; others may be the user's own."""
    partners: dict[str, list[str]] = {}
    for images, labels in (pair for pairs in _NPZ_KEYS.values() for pair in pairs):
        partners.setdefault(images, []).append(labels)
        partners.setdefault(labels, []).append(images)
    for name in arrays:
        if name in partners and not any(partner in arrays for partner in partners[name]):
            raise DataError(f"{path}: has {name} but not {partners[name][0]}; found {', '.join(arrays)}")
        near = get_close_matches(name, partners, n=1, cutoff=0.75)
        if name not in partners and near:
            raise DataError(
                f"{path}: array {name!r} would not be used: did you mean {near[0]!r}? Found {', '.join(arrays)}"
            )


def _checked(parts: Parts, origin: str) -> Parts:
    """All parts must have images of one form, and no label that training does not know."""
    train = parts["train"]
    highest = int(train.labels.max())
    _check_labels(train.labels, origin)
    for part, samples in parts.items():
        form, expected = (samples.images.shape[1:], samples.images.dtype), (train.images.shape[1:], train.images.dtype)
        if form != expected:
            raise DataError(
                f"{origin}: {part} images are {form[1]} of shape {form[0]}, training has {expected[1]} {expected[0]}"
            )
        if samples.labels.max() > highest:
            raise DataError(
                f"{origin}: label {samples.labels.max()} at index {samples.labels.argmax()} of {part} is out of range: "
                f"training labels end at {highest}"
            )
    return parts


def _check_labels(labels: np.ndarray, origin: str) -> None:
    """Classes are counted from 0 to the highest label: a class without a single image is hardly meant."""
    found = np.unique(labels)
    lowest, highest = int(found[0]), int(found[-1])
    if lowest:
        raise DataError(
            f"{origin}: training labels run from {lowest} to {highest}; they must count from 0: subtract {lowest}"
        )
    if len(found) <= highest:
        present = set(found.tolist())
        missing = islice((label for label in range(highest) if label not in present), 5)
        warnings.warn(
            f"{origin}: {len(found)} different training labels from 0 to {highest}: {highest + 1 - len(found)} classes have no image "
            f"(first: {', '.join(map(str, missing))}): renumber them if that is not meant",
            RegrowWarning,
            stacklevel=2,
        )
