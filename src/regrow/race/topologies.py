"""The masks that a run had along its way, a small file each: at the start, and where they changed, at most every tenth of the run.

Masks are bits, with their hash in the file's name: what steps are timed with, later and on a quiet machine.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regrow.errors import StateError
from regrow.files import checksum, write_atomically
from regrow.handle import Handle
from regrow.topology.journal import pack, unpack

_FOLDER, _HASH = "masks", 12


def keep(folder: Path, step: int, handle: Handle, every: int) -> None:
    """Keep the masks of ``step`` if it is the first, or if they changed since the last kept ones, ``every`` steps ago or more."""
    bits = {sparse.name: pack(sparse.mask).numpy() for sparse in handle.parameters}
    content = io.BytesIO()
    np.savez(content, **bits)  # type: ignore[arg-type]  # its stub takes the names for options
    data = content.getvalue()
    name = f"{step:09d}-{checksum(data)[:_HASH]}.npz"
    earlier = [path for path in _files(folder) if _step(path) < step]
    if earlier and (_step(earlier[-1]) > step - every or _hash(earlier[-1]) == checksum(data)[:_HASH]):
        return
    for path in _files(folder):
        if _step(path) >= step:  # of a run that was ended behind its last checkpoint
            path.unlink()
    (folder / _FOLDER).mkdir(exist_ok=True)
    write_atomically(folder / _FOLDER / name, data)


def kept(folder: Path, handle: Handle) -> dict[int, dict[str, Tensor]]:
    """Step -> masks, by names of parameters; empty for a dense run."""
    shapes = {sparse.name: sparse.mask.shape for sparse in handle.parameters}
    return {_step(path): _read(path, shapes) for path in _files(folder)}


def _read(path: Path, shapes: dict[str, torch.Size]) -> dict[str, Tensor]:
    data = path.read_bytes()
    if checksum(data)[:_HASH] != _hash(path):
        raise StateError(f"{path} is damaged: its content does not have the hash of its name. Remove it")
    with np.load(io.BytesIO(data)) as bits:
        return {name: unpack(torch.from_numpy(bits[name]), shape) for name, shape in shapes.items()}


def _files(folder: Path) -> list[Path]:
    return sorted((folder / _FOLDER).glob("*.npz"))


def _step(path: Path) -> int:
    return int(path.stem.partition("-")[0])


def _hash(path: Path) -> str:
    return path.stem.partition("-")[2]
