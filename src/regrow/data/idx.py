"""IDX, the file format of MNIST: two zero bytes, a type code, the number of dimensions, the sizes, then the values.

All numbers are big-endian. Files may be compressed with gzip: the content decides, not the name.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from regrow.data.errors import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CODES = {np.dtype(kind).newbyteorder("="): code for code, kind in _TYPES.items()}
_GZIP_MAGIC = b"\x1f\x8b"


def parse_idx(content: bytes, origin: str = "IDX data") -> np.ndarray:
    """Decode the bytes of an IDX file into an array of native byte order that may be written to.

    Args:
        content: the file, compressed or not.
        origin: named in errors.

    Example:
        >>> parse_idx(dump_idx(np.arange(3, dtype=np.uint8))).tolist()
        [0, 1, 2]
    """
    content = decompress(content, origin)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _TYPES:
        raise DataError(f"{origin}: not an IDX file (it starts with {content[:4].hex(' ') or 'nothing'})")
    dtype, dimensions = np.dtype(_TYPES[content[2]]), content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise DataError(f"{origin}: truncated inside the header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    expected = start + dtype.itemsize * math.prod(shape)
    if len(content) != expected:
        problem = "truncated" if len(content) < expected else "too long"
        raise DataError(
            f"{origin}: {problem}, {len(content)} bytes where the header of shape {shape} asks for {expected}"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def dump_idx(array: np.ndarray) -> bytes:
    """Encode an array as the bytes of an uncompressed IDX file."""
    code = _CODES.get(array.dtype.newbyteorder("="))
    if code is None:
        raise DataError(f"IDX files cannot hold {array.dtype}: use one of {', '.join(str(kind) for kind in _CODES)}")
    if array.ndim > 255:
        raise DataError("IDX files have at most 255 dimensions")
    header = bytes((0, 0, code, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(_TYPES[code]).tobytes()


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file, compressed or not."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_idx(content, str(path))


def decompress(content: bytes, origin: str) -> bytes:
    """Undo gzip compression where there is any."""
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{origin}: damaged gzip file ({error})") from error
