"""IDX, the file format of MNIST: two zero bytes, a type code, the number of dimensions, the sizes, then the values.

All numbers are big-endian. Files may be compressed with gzip: the content decides, not the name.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from regrow.data.bounds import GZIP_MAGIC, read_bounded, refuse_larger
from regrow.data.errors import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_CODES = {np.dtype(kind).newbyteorder("="): code for code, kind in _TYPES.items()}
_MOST_DIMENSIONS = 32  # of the oldest numpy that is supported


def parse_idx(content: bytes, origin: str = "IDX data") -> np.ndarray:
    """Decode the bytes of an IDX file into an array of native byte order that may be written to.

    Args:
        content: the file, compressed or not.
        origin: named in errors.

    Example:
        >>> parse_idx(dump_idx(np.arange(3, dtype=np.uint8))).tolist()
        [0, 1, 2]
    """
    dtype, shape, start = _header(content, origin)
    expected = start + dtype.itemsize * math.prod(shape)
    refuse_larger(expected, origin)
    if content.startswith(GZIP_MAGIC):
        content = decompress(content, origin, most=expected)
    if len(content) != expected:
        problem = "truncated" if len(content) < expected else "too long"
        raise DataError(
            f"{origin}: {problem}, {len(content)} bytes where the header of shape {shape} asks for {expected}"
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def _header(content: bytes, origin: str) -> tuple[np.dtype, tuple[int, ...], int]:
    """Type, shape, and where the values begin."""
    head = _first_bytes(content, origin)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise DataError(f"{origin}: not an IDX file (it starts with {head[:4].hex(' ') or 'nothing'})")
    dimensions, start = head[3], 4 + 4 * head[3]
    if dimensions > _MOST_DIMENSIONS:
        raise DataError(f"{origin}: has {dimensions} dimensions, more than the {_MOST_DIMENSIONS} of an array")
    if len(head) < start:
        raise DataError(f"{origin}: truncated inside the header")
    return np.dtype(_TYPES[head[2]]), struct.unpack(f">{dimensions}I", head[4:start]), start


def _first_bytes(content: bytes, origin: str) -> bytes:
    longest = 4 + 4 * 255
    if not content.startswith(GZIP_MAGIC):
        return content[:longest]
    try:
        return gzip.GzipFile(fileobj=io.BytesIO(content)).read(longest)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{origin}: damaged gzip file ({error})") from error


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
        refuse_larger(path.stat().st_size, str(path))
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_idx(content, str(path))


def decompress(content: bytes, origin: str, most: int) -> bytes:
    """Undo gzip compression where there is any; an error if more than so many bytes come out."""
    stream = gzip.GzipFile(fileobj=io.BytesIO(content)) if content.startswith(GZIP_MAGIC) else io.BytesIO(content)
    try:
        return read_bounded(stream, most, origin)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{origin}: damaged gzip file ({error})") from error
