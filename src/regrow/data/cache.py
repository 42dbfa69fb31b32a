"""The cache of fetched data: a folder per data set that is complete and verified, or absent."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from regrow.files import sync_directory

_PARTIAL = ".partial-"
_STALE_SECONDS = 24 * 3600


def is_complete(folder: Path, expected: Mapping[str, str]) -> bool:
    """Whether a folder has all files with the expected SHA-256."""
    try:
        return all(_file_digest(folder / name) == digest for name, digest in expected.items())
    except OSError:
        return False


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def partial_folder(root: Path) -> Iterator[Path]:
    """A folder beside the cache's own, to be filled and published; removed afterwards, whatever happens."""
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    # Not tempfile's: it would close the published folder to other users.
    folder = root / f"{_PARTIAL}{uuid4().hex}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what killed processes left behind, but not what another process is filling now."""
    for folder in root.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def publish(filled: Path, target: Path, expected: Mapping[str, str]) -> None:
    """Give a filled folder its name in one step; of processes that do so at once one wins, and all have the data."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):
        try:
            filled.rename(target)
            break
        except OSError:
            if is_complete(target, expected):
                return
            # A damaged cache is in the way: move it aside in one step, so that nobody ever reads half of it.
            with partial_folder(target.parent) as aside:
                target.rename(aside / target.name)
    else:
        raise OSError(f"{target} cannot be replaced: remove it by hand")
    sync_directory(target.parent)
