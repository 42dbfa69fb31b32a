"""Arrays of an `.npz` file, one by one: only those that are used, each with a bound before memory is taken."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from regrow.data.bounds import refuse_larger
from regrow.data.errors import DataError

_MOST_EXPANSION = 1100  # deflate makes of a byte at most 1,032


def read_arrays(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray | None]:
    """All names in the file; with their arrays those that are wanted, with None the others, which are not read."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path}: is not an .npz archive: write one with numpy.savez")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            return {name: _read(archive, info, path) if name in wanted else None for name, info in members.items()}
    except DataError:
        raise
    except Exception as error:
        # Damage makes decoders raise nearly everything (zlib.error, NotImplementedError, tokenize.TokenError, ...).
        raise DataError(f"{path}: cannot be read as .npz ({type(error).__name__}: {error})") from error


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> np.ndarray:
    origin = f"{path}: {info.filename}"
    with archive.open(info) as file:
        shape, _, dtype = _header(file)
    if dtype.hasobject:
        raise DataError(f"{path}: holds Python objects, which are never read: save plain arrays of numbers")
    size = dtype.itemsize * math.prod(shape)
    refuse_larger(size, origin)
    refuse_larger(size, origin, most=min(info.file_size, _MOST_EXPANSION * info.compress_size))
    with archive.open(info) as file:
        return npy.read_array(file, allow_pickle=False)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = npy.read_magic(file)
    if version == (1, 0):
        return npy.read_array_header_1_0(file)
    if version == (2, 0):
        return npy.read_array_header_2_0(file)
    raise DataError(f"{file.name}: an array of format {version}, which is not read")
