"""Files that are either whole or absent."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside, flush to disk, rename: a reader sees the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
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


def write_through(path: Path, content: bytes) -> None:
    """Write and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
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
