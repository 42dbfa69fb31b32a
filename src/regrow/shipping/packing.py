"""One weight tensor as strided parts that only hold present weights, and back, checked.

bitmask  `values` + `mask`: one bit per position, first bit lowest, rows padded to whole bytes
csr      `values` + `columns` + `counts`: the column of each weight, rising inside a row, and how many each row has (uint16 or int32)
dense    the tensor itself

A row is the first dimension of the tensor, its columns all others together; a vector is one row. Which weights are present is stored, not
taken from the values: a present weight may be zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regrow.errors import StateError

VALUES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Types in which values may be stored, by name."""
LAYOUTS = {"dense": (), "bitmask": ("values", "mask"), "csr": ("values", "columns", "counts")}
"""The parts of each layout; a dense tensor has no parts, it is stored under its own name."""
_BYTE = 8
_LARGEST = 2**62
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.int64)


@dataclass(frozen=True)
class Packed:
    """A tensor in one of the layouts; ``parts`` by name, a dense one under the empty name."""

    layout: str
    shape: tuple[int, ...]
    parts: Mapping[str, Tensor]


def matrix_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a tensor's matrix.

    Example:
        >>> matrix_shape((64, 3, 3, 3)), matrix_shape((10,))
        ((64, 27), (1, 10))
    """
    return (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


def pack(tensor: Tensor, mask: Tensor | None = None, dtype: torch.dtype | None = None) -> Packed:
    """The smaller of both sparse layouts; dense without a mask, or with one that is full."""
    tensor = tensor.detach().cpu()
    stored = tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)
    shape = tuple(tensor.shape)
    if mask is None or tensor.ndim == 0 or bool(mask.all()):
        return Packed("dense", shape, {"": stored.contiguous()})
    rows, columns = matrix_shape(shape)
    marks = mask.detach().cpu().reshape(rows, columns).numpy()
    where = np.flatnonzero(marks)
    values = stored.reshape(-1)[torch.from_numpy(where)]
    kind = np.dtype(np.uint16 if columns < 2**16 else np.int32)
    if rows * -(-columns // _BYTE) <= (len(where) + rows) * kind.itemsize:
        return Packed(
            "bitmask",
            shape,
            {"values": values, "mask": torch.from_numpy(np.packbits(marks, axis=1, bitorder="little"))},
        )
    parts = {"columns": (where % columns).astype(kind), "counts": np.count_nonzero(marks, axis=1).astype(kind)}
    return Packed("csr", shape, {"values": values, **{name: torch.from_numpy(part) for name, part in parts.items()}})


def check(name: str, packed: Packed) -> None:
    """Refuse parts that do not describe a tensor of the stated shape.

    Raises:
        StateError: naming the tensor and what is wrong with it.
    """
    problem = _problem(packed)
    if problem is not None:
        raise StateError(f"tensor {name} is not usable: {problem}")


def positions(packed: Packed) -> np.ndarray:
    """Flat indices of the present weights of a checked sparse tensor, ascending."""
    rows, columns = matrix_shape(packed.shape)
    if packed.layout == "bitmask":
        bits = np.unpackbits(packed.parts["mask"].numpy(), axis=1, count=columns, bitorder="little")
        return np.flatnonzero(bits)
    starts = np.repeat(np.arange(rows, dtype=np.int64) * columns, packed.parts["counts"].numpy())
    return starts + packed.parts["columns"].numpy()


def unpack(packed: Packed) -> tuple[Tensor, Tensor | None]:
    """A checked tensor in its full shape, zero where no weight is, and its mask (None: all present); at least single precision."""
    values = packed.parts["" if packed.layout == "dense" else "values"]
    values = values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
    if packed.layout == "dense":
        return values, None
    where = positions(packed)
    full = np.zeros(math.prod(packed.shape), dtype=values.numpy().dtype)
    mask = np.zeros(len(full), dtype=bool)
    full[where], mask[where] = values.numpy(), True
    return torch.from_numpy(full).reshape(packed.shape), torch.from_numpy(mask).reshape(packed.shape)


def _problem(packed: Packed) -> str | None:
    if packed.layout not in LAYOUTS:
        return f"its layout {packed.layout!r} is unknown"
    if any(size < 0 for size in packed.shape) or math.prod(packed.shape) > _LARGEST:
        return f"its shape {packed.shape} is impossible"
    if packed.layout == "dense":
        stored = tuple(packed.parts[""].shape)
        return None if stored == packed.shape else f"it has shape {stored}, not {packed.shape}"
    if not packed.shape:
        return "a single number has no sparse layout"
    values = packed.parts["values"]
    if values.ndim != 1 or not values.is_floating_point():
        return "its values are not a vector of numbers"
    return (_bitmask_problem if packed.layout == "bitmask" else _csr_problem)(packed)


def _bitmask_problem(packed: Packed) -> str | None:
    rows, columns = matrix_shape(packed.shape)
    mask = packed.parts["mask"]
    if mask.dtype != torch.uint8 or tuple(mask.shape) != (rows, -(-columns // _BYTE)):
        return f"its mask does not have one bit for each of {rows} x {columns} positions"
    bits = mask.numpy()
    if columns % _BYTE and bool((bits[:, -1] >> (columns % _BYTE)).any()):
        return "its mask marks positions behind the end of a row"
    count = int(_ONES[bits].sum())
    return None if count == len(packed.parts["values"]) else f"{count} positions, {len(packed.parts['values'])} values"


def _csr_problem(packed: Packed) -> str | None:
    rows, columns = matrix_shape(packed.shape)
    counts, places, count = packed.parts["counts"], packed.parts["columns"], len(packed.parts["values"])
    if counts.dtype not in (torch.uint16, torch.int32) or tuple(counts.shape) != (rows,):
        return f"its counts are not {rows} whole numbers"
    if places.dtype not in (torch.uint16, torch.int32) or tuple(places.shape) != (count,):
        return f"its columns are not {count} whole numbers"
    of_rows, order = counts.numpy().astype(np.int64), places.numpy().astype(np.int64)
    if of_rows.sum() != count or bool((of_rows < 0).any()):
        return f"its counts do not add up to {count} values"
    if count and (order.min() < 0 or order.max() >= columns):
        return f"a column lies outside 0 ... {columns - 1}"
    flat = np.repeat(np.arange(rows, dtype=np.int64) * columns, of_rows) + order
    return None if bool((np.diff(flat) > 0).all()) else "columns of a row do not rise"
