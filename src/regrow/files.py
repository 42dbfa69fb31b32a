"""Files that are either whole or absent."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, flush to disk, rename: a reader sees the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        beside.unlink(missing_ok=True)  # of a killed process, or a link that somebody put there
        write_through(beside, content)
        os.replace(beside, path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        # The user knows the file, not what stands beside it.
        raise OSError(error.errno, f"cannot be written ({error.strerror})", str(path)) from error
    sync_directory(path.parent)


_holding: set[Path] = set()


@contextmanager
def held(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold a folder against others that would hold it: these wait, or raise BlockingIOError; the system lets go when a process dies.

    With ``wait``, what this process holds already it need not wait for.
    """
    place = folder.resolve()
    if os.name != "posix" or (wait and place in _holding):
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        _holding.add(place)
        try:
            yield
        finally:
            _holding.discard(place)
    finally:
        os.close(descriptor)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Give the system's errors the file's name, which those of writing lack: a full disk, a limit on sizes."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_through(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it. Whatever stands in its place, a link above all, is an error."""
    with named(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def append(path: Path, content: bytes, sync: bool = False) -> None:
    """Add to a file that must be there, and be no link; where asked, wait until the disk has it."""
    with named(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "ab") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())


def remove(path: Path) -> None:
    """Remove a file, a folder with all in it, or a link, which is not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    with named(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def checksum(content: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def cache_root() -> Path:
    """`$REGROW_CACHE`, or `~/.cache/regrow`."""
    chosen = os.environ.get("REGROW_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "regrow"
