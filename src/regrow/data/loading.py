"""`load`: any data set, by name or by path, one split at a time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regrow.data import catalogue
from regrow.data.arrays import LabelledImages, Normalisation, hold_out_per_class, hold_out_tail, labelled_images
from regrow.data.catalogue import CIFAR10, IMAGENET, SPLITS, DatasetInfo
from regrow.data.errors import DataError
from regrow.data.fetch import get
from regrow.data.own import Parts, holds_idx, read_idx_folder, read_npz

if TYPE_CHECKING:
    from regrow.data.dataset import Dataset

_CIFAR_RECORD = 1 + 3 * 32 * 32
_IMAGENET_CLASSES = 1000


@dataclass(frozen=True)
class Form:
    """What a model must fit: the shape of one image (channels, height, width), and the number of classes."""

    shape: tuple[int, int, int]
    num_classes: int


def form_of(name: str | Path, *, root: str | Path | None = None, image_size: int = 224) -> Form:
    """The form of a data set, as `load` would give it. Nothing is fetched: of named data sets it is known beforehand.

    Example:
        >>> form_of("cifar10")
        Form(shape=(3, 32, 32), num_classes=10)
    """
    record = catalogue.find(str(name))
    if record is IMAGENET:
        return Form((3, image_size, image_size), _imagenet_classes(root))
    if record is not None:
        return Form(record.shape, len(record.class_names))
    dataset = load(name, image_size=image_size)
    return Form(dataset.shape, dataset.num_classes)


def _imagenet_classes(root: str | Path | None) -> int:
    """Those of the folder; the published number where none is named or $REGROW_DATA has none."""
    from regrow.data.folder import find_classes

    if root is None and not (os.environ.get("REGROW_DATA") and _imagenet_root(None).is_dir()):
        return _IMAGENET_CLASSES
    return len(find_classes(_imagenet_root(root) / "train"))


def load(
    name: str | Path,
    split: str = "train",
    *,
    root: str | Path | None = None,
    augment: bool | None = None,
    image_size: int = 224,
    normalisation: Normalisation | None = None,
) -> Dataset:
    """One split of a data set.

    Args:
        name: `mnist`, `mnist-sample`, `cifar10` (fetched if need be), `imagenet`, or the path of your own data: a
            folder of IDX files, an `.npz` file, or a folder with `train/<class>/<image>`.
        split: `train`, `val`, `test`, or `train+val`. Where the data have no validation part of their own, a tenth
            of the training data is held out: of MNIST and CIFAR-10 the last tenth, as in the papers; of your own data
            the last tenth of every class.
        root: local folder that has the files of a named data set.
        augment: random crops and flips; by default as published (on for training splits of CIFAR-10 and image folders).
        image_size: side of the images of an image folder.
        normalisation: mean and standard deviation per channel, in place of the data set's own.

    Example:
        >>> load("mnist-sample", "test")
        ArrayDataset(mnist-sample test: 1000 images 1x28x28, 10 classes)
    """
    found = _load(name, split, root, augment, image_size, normalisation)
    if normalisation is not None and len(normalisation.mean) != found.shape[0]:
        raise DataError(
            f"{found.name} has {found.shape[0]} channels, but mean and std are given for {len(normalisation.mean)}"
        )
    return found


def _load(
    name: str | Path,
    split: str,
    root: str | Path | None,
    augment: bool | None,
    image_size: int,
    normalisation: Normalisation | None,
) -> Dataset:
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    record = catalogue.find(str(name))
    if record is IMAGENET:
        return _image_folder(_imagenet_root(root), split, IMAGENET.name, image_size, augment, normalisation)
    if record is not None:
        return _named(record, split, root, augment, normalisation)
    path = Path(name).expanduser()
    if not path.exists():
        raise catalogue.unknown(str(name), also=", or the path of your own data (there is no such file or folder)")
    if (path / "train").is_dir() or (not holds_idx(path) and _holds_classes(path)):
        return _image_folder(path, split, path.name, image_size, augment, normalisation)
    return _own_arrays(path, split, augment, normalisation)


def _holds_classes(path: Path) -> bool:
    from regrow.data.folder import holds_classes

    return holds_classes(path)


def _named(
    record: DatasetInfo, split: str, root: str | Path | None, augment: bool | None, normalisation: Normalisation | None
) -> Dataset:
    folder = get(record.name, root)
    parts = _read_cifar10(folder, split) if record is CIFAR10 else read_idx_folder(folder)
    samples = _select(parts, split, per_class=False, origin=record.name)
    wanted = record.augment and split.startswith("train") if augment is None else augment
    return _in_memory(samples, normalisation or record.normalisation, record.name, split, record.class_names, wanted)


def _own_arrays(path: Path, split: str, augment: bool | None, normalisation: Normalisation | None) -> Dataset:
    parts = _read_own(path)
    samples = _select(parts, split, per_class=True, origin=str(path))
    # Statistics come from what is trained on, so that all splits are normalised alike.
    normalisation = normalisation or Normalisation.of(_select(parts, "train", per_class=True, origin=str(path)))
    class_names = tuple(map(str, range(int(parts["train"].labels.max()) + 1)))
    return _in_memory(samples, normalisation, path.stem, split, class_names, bool(augment))


def _read_own(path: Path) -> Parts:
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path)
    if path.is_dir() and holds_idx(path):
        return read_idx_folder(path)
    raise DataError(
        f"{path}: not a known form of data; expected a folder with train-images* and train-labels* IDX files, an .npz "
        "file with x_train and y_train (or X and y), or a folder with train/<class>/<image> or <class>/<image>"
    )


def _read_cifar10(folder: Path, split: str) -> Parts:
    """Only the part that the split needs: records of one label byte and three planes of 32x32."""
    part, names = "train", [f"data_batch_{number}.bin" for number in range(1, 6)]
    if split == "test":
        part, names = "test", ["test_batch.bin"]
    rows = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, _CIFAR_RECORD) for name in names])
    return {part: labelled_images(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0], "cifar10")}


def _select(parts: Parts, split: str, per_class: bool, origin: str) -> LabelledImages:
    """The samples of a split, held out of the training part where there is no validation part."""
    if split == "test":
        if "test" not in parts:
            raise DataError(
                f"{origin}: has no test part; add one, or test on the validation part with --test-split val"
            )
        return parts["test"]
    training = parts["train"]
    if "val" in parts:
        if split == "train+val":
            both = (training, parts["val"])
            return LabelledImages(*(np.concatenate([getattr(p, f) for p in both]) for f in ("images", "labels")))
        return parts[split]
    if split == "train+val":
        return training
    kept, held = (hold_out_per_class if per_class else hold_out_tail)(training.labels)
    chosen = kept if split == "train" else held
    if not len(chosen):
        raise DataError(f"{origin}: too few samples to hold any out for validation; add a validation part of your own")
    return training.take(chosen)


def _in_memory(
    samples: LabelledImages,
    normalisation: Normalisation,
    name: str,
    split: str,
    class_names: tuple[str, ...],
    augment: bool,
) -> Dataset:
    from regrow.data.memory import ArrayDataset

    return ArrayDataset(
        samples,
        normalisation,
        name=name,
        split=split,
        class_names=class_names,
        augment=augment,
        shuffle=split.startswith("train"),
    )


def _image_folder(
    root: Path,
    split: str,
    name: str,
    image_size: int,
    augment: bool | None,
    normalisation: Normalisation | None,
) -> Dataset:
    from regrow.data.folder import ImageFolder

    usual = normalisation or IMAGENET.normalisation
    return ImageFolder(root, split, name=name, image_size=image_size, augment=augment, normalisation=usual)


def _imagenet_root(root: str | Path | None) -> Path:
    if root is not None:
        return Path(root).expanduser()
    base = os.environ.get("REGROW_DATA")
    if base is None:
        return get(IMAGENET.name)
    return Path(base).expanduser() / IMAGENET.name
