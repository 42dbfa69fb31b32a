"""Large buffers: glibc returns them to the system after every step and faults them in anew, unless it is told to keep them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 2**31 - 1
_RETURN = 1 << 22  # smaller buffers are glibc's business

_keeps = False


def keep_buffers() -> bool:
    """Raise glibc's thresholds for giving memory back; True where it worked, False on other systems."""
    global _keeps
    _keeps = _set_thresholds(_KEEP // 2, _KEEP)
    return _keeps


@contextmanager
def returning() -> Iterator[None]:
    """Return what is kept and unused to the system, and keep nothing meanwhile.

    For work whose buffers have other sizes than those of steps, before or after: kept together they would make the peak of memory.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.malloc_trim(0)
    if _keeps:
        _set_thresholds(_RETURN, _RETURN)
    try:
        yield
    finally:
        if _keeps:
            keep_buffers()
        libc.malloc_trim(0)


def _set_thresholds(mapped: int, trimmed: int) -> bool:
    libc = _glibc()
    if libc is None:
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, mapped)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, trimmed))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
