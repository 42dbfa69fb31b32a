"""Bounds before memory is taken: headers of damaged or hostile files may ask for anything."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from regrow.data.errors import DataError

LARGEST_ARCHIVE = 1 << 30
"""Bytes that an archive of MNIST or CIFAR-10 may unpack to, many times what the published ones do."""
MOST_CLASSES = 1_000_000
_PIECE = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"


def memory() -> int:
    """Bytes that this process may have at most: the machine's memory, or less where a limit is set."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 1 << 36
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except ImportError:
        return total
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def refuse_larger(size: int, origin: str, most: int | None = None) -> None:
    """Refuse what would not fit into memory."""
    most = memory() if most is None else most
    if size > most:
        raise DataError(
            f"{origin}: would take {size:,} bytes, more than the {most:,} there may be: it is damaged, or too large"
        )


def read_bounded(stream: IO[bytes] | gzip.GzipFile, most: int, origin: str) -> bytes:
    """All that is left of a stream, which may be a compressed one; an error if that is more than so many bytes."""
    parts, left = [], most + 1
    while left and (
        part := stream.read(min(left, _PIECE))
    ):  # in pieces: a buffer for all that is claimed may not be had
        parts.append(part)
        left -= len(part)
    content = b"".join(parts)
    if len(content) > most:
        raise DataError(f"{origin}: unpacks to more than {most:,} bytes: it is damaged, or too large")
    return content


class Bounded(io.RawIOBase):
    """A stream that ends in an error after so many bytes, whatever a reader asks for."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, most: int, origin: str) -> None:
        self._stream, self._left, self._origin = stream, most, origin

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes."""
        content = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise DataError(f"{self._origin}: unpacks to more bytes than any published archive")
        return content


@contextmanager
def unpacked(path: Path, most: int) -> Iterator[Bounded]:
    """The content of a file, gzip undone where there is any, as a stream with a bound."""
    with path.open("rb") as file:
        compressed = file.read(2) == GZIP_MAGIC
        file.seek(0)
        yield Bounded(gzip.GzipFile(fileobj=file) if compressed else file, most, str(path))
