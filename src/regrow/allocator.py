"""Keep large buffers: glibc returns them to the system after every step and faults them in anew."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEEP = 2**31 - 1


def keep_buffers() -> bool:
    """Raise glibc's thresholds for giving memory back; True where it worked, False on other systems."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        return False
    return bool(libc.mallopt(_M_MMAP_THRESHOLD, _KEEP // 2)) and bool(libc.mallopt(_M_TRIM_THRESHOLD, _KEEP))
