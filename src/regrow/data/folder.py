"""Images in folders, one folder per class: ImageNet's layout, and the user's own.

    root/train/<class>/*.JPEG    root/val/<class>/*.JPEG    root/test/<class>/*.JPEG

Files are decoded by a pool of threads, some batches ahead (Pillow releases Python's lock while it decodes and resizes).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regrow.data import draws, images
from regrow.data.arrays import Normalisation, hold_out_per_class
from regrow.data.catalogue import IMAGENET
from regrow.data.dataset import Dataset
from regrow.data.epoch import Epoch
from regrow.data.errors import DataError
from regrow.environment import cores

PREFETCHED_BATCHES = 2


@dataclass(frozen=True)
class Listing:
    """Files and their labels, in the order of class names and file names."""

    paths: tuple[str, ...]
    labels: np.ndarray

    def take(self, chosen: np.ndarray) -> Listing:
        """Some of the files."""
        return Listing(tuple(self.paths[i] for i in chosen), self.labels[chosen])

    def __add__(self, other: Listing) -> Listing:
        """One listing after the other."""
        return Listing(self.paths + other.paths, np.concatenate([self.labels, other.labels]))


def find_classes(folder: Path) -> tuple[str, ...]:
    """Names of the class folders, sorted."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder")
    names = tuple(
        sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    )
    if not names:
        raise DataError(f"{folder}: has no class folders; expected <class>/<image> inside")
    return names


def list_images(folder: Path, class_names: tuple[str, ...]) -> Listing:
    """All image files below the class folders of `folder`.

    Raises:
        DataError: a class without images, or a folder that is not among `class_names`.
    """
    present = find_classes(folder)
    unknown = [name for name in present if name not in set(class_names)]
    if unknown:
        raise DataError(f"{folder / unknown[0]}: this class does not occur in the training folder")
    paths: list[str] = []
    labels: list[int] = []
    for name in present:
        with os.scandir(folder / name) as entries:
            named = [(os.path.splitext(entry.name)[1].lower(), entry) for entry in entries]
        if refused := [entry.path for suffix, entry in named if suffix in images.REFUSED]:
            raise DataError(
                f"{min(refused)}: TIFF is not read, and {len(refused)} such files are in this class; save them as PNG"
            )
        found = [entry for suffix, entry in named if suffix in images.SUFFIXES]
        if odd := [e.path for e in found if not os.path.isfile(e.path)]:
            raise DataError(f"{min(odd)}: is no regular file (a pipe, a folder or a broken link); remove it")
        files = sorted(e.path for e in found)
        if not files:
            raise DataError(f"{folder / name}: class folder without images ({', '.join(sorted(images.SUFFIXES))})")
        paths += files
        labels += [class_names.index(name)] * len(files)
    return Listing(tuple(paths), np.array(labels, np.int64))


def training_folder(root: Path) -> Path:
    """Where the training classes are: in `train`, or at the top where no part has a folder of its own."""
    parted = any((root / part).is_dir() for part in ("train", "val", "test"))
    return root / "train" if parted or not holds_classes(root) else root


def holds_classes(folder: Path) -> bool:
    """Whether a folder has folders with images in them: classes without parts."""
    return folder.is_dir() and any(
        path.suffix.lower() in images.SUFFIXES | images.REFUSED for path in folder.glob("[!.]*/*") if path.is_file()
    )


def list_split(root: Path, split: str) -> tuple[Listing, tuple[str, ...]]:
    """The files of one split, and the class names, which the training folder defines.

    Without a `val` folder the last 10% of every training class are held out. Without a `test` folder there is no test split:
    who wants to test on the validation images, as the papers do on ImageNet, says so.
    """
    train = training_folder(root)
    class_names = find_classes(train)
    has_val = (root / "val").is_dir()
    if split == "test":
        if not (root / "test").is_dir():
            raise DataError(
                f"{root}: has no 'test' folder; add one, or test on the validation images with --test-split val"
            )
        return list_images(root / "test", class_names), class_names
    if split == "val" and has_val:
        return list_images(root / "val", class_names), class_names
    training = list_images(train, class_names)
    if split == "train+val":
        return training + list_images(root / "val", class_names) if has_val else training, class_names
    if has_val:
        return training, class_names
    kept, held = hold_out_per_class(training.labels)
    chosen = kept if split == "train" else held
    if not len(chosen):
        raise DataError(f"{root}: too few images to hold any out for validation; add a 'val' folder of your own")
    return training.take(chosen), class_names


class ImageFolder(Dataset):
    """Images that are read from files batch by batch.

    Batches come in channels-last memory format, in which they are decoded and in which convolutions are fastest.

    Args:
        root: folder with a `train` folder and perhaps `val` and `test`.
        split: `train`, `val`, `test` or `train+val`.
        name: of the data set; the folder's by default.
        image_size: side of the square images.
        augment: random resized crop and flip; the centre otherwise. By default what the split asks for.
        normalisation: mean and standard deviation per channel.
        workers: decoding threads; by default one per available processor.
    """

    def __init__(
        self,
        root: str | Path,
        split: str = "train",
        *,
        name: str | None = None,
        image_size: int = 224,
        augment: bool | None = None,
        normalisation: Normalisation = IMAGENET.normalisation,
        workers: int | None = None,
    ) -> None:
        root = Path(root)
        self.name, self.split = name or root.name, split
        self.shape = (3, image_size, image_size)
        self.shuffle = split.startswith("train")
        self.augment = self.shuffle if augment is None else augment
        self.workers = workers or cores()
        self._listing, self.class_names = list_split(root, split)
        mean, std = (np.tile(values, image_size) for values in (normalisation.mean, normalisation.std))
        self._scale, self._shift = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)

    @property
    def labels(self) -> np.ndarray:
        """The label of each image."""
        return self._listing.labels

    def __len__(self) -> int:
        """Number of files."""
        return len(self._listing.paths)

    def problems(self, quick: bool = False) -> list[str]:
        """Open every file, and name all that cannot be read."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="regrow-check") as pool:
            found = pool.map(partial(images.problem, quick=quick), self._listing.paths)
            return [problem for problem in found if problem is not None]

    def _produce(self, course: Epoch, samples_innermost: bool) -> Iterator[tuple[Tensor, Tensor]]:
        order = course.order()
        pending: deque[_Decoding] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="regrow-decode")
        try:
            for start, stop in course:
                pending.append(self._start(pool, order[start:stop], course))
                if len(pending) > PREFETCHED_BATCHES:
                    yield self._finish(pending.popleft())
            while pending:
                yield self._finish(pending.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _start(self, pool: ThreadPoolExecutor, chosen: np.ndarray, course: Epoch) -> _Decoding:
        images = np.empty((len(chosen), *self.shape[1:], 3), np.float32)
        tasks = [
            pool.submit(self._decode, images[row], int(i), course.seed, course.epoch) for row, i in enumerate(chosen)
        ]
        return _Decoding(images, self._listing.labels[chosen], tasks)

    def _finish(self, decoding: _Decoding) -> tuple[Tensor, Tensor]:
        for task in decoding.tasks:
            task.result()
        return torch.from_numpy(decoding.images).permute(0, 3, 1, 2), torch.from_numpy(decoding.labels)

    def _decode(self, target: np.ndarray, index: int, seed: int, epoch: int) -> None:
        path, size = self._listing.paths[index], self.shape[1]
        if self.augment:
            uniform = draws.uniform(seed, draws.RESIZED_CROP, epoch, index, np.arange(images.DRAWS))
            pixels = images.training_view(path, size, uniform)
        else:
            pixels = images.evaluation_view(path, size)
        # Whole rows of interleaved channels: numpy is slow where the innermost dimension is the three colours.
        rows = target.reshape(size, 3 * size)
        np.multiply(pixels.reshape(size, 3 * size), self._scale, out=rows)
        rows += self._shift


@dataclass(frozen=True)
class _Decoding:
    """A batch under way: the threads write into `images`."""

    images: np.ndarray
    labels: np.ndarray
    tasks: list[Future[None]]
