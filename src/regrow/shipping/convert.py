"""Sparse tensors as SciPy and torch know them, and back. Present weights that are zero stay present in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.shipping.packing import Packed, check, matrix_shape, positions


def to_scipy(packed: Packed) -> Any:
    """A packed tensor as `scipy.sparse.csr_array`: rows by the first dimension, all others together as columns."""
    from scipy.sparse import csr_array

    ends, columns, values = _csr(packed)
    return csr_array((values.float().numpy(), columns, ends), shape=matrix_shape(packed.shape))


def from_scipy(matrix: Any, shape: Sequence[int] | None = None) -> Packed:
    """A SciPy sparse matrix as a packed CSR tensor; ``shape`` where the tensor has more dimensions than two."""
    matrix = matrix.tocsr().sorted_indices()
    return _packed(torch.from_numpy(matrix.data), matrix.indices, matrix.indptr, matrix.shape, shape)


def to_torch_csr(packed: Packed) -> Tensor:
    """A packed tensor as a `torch.sparse_csr` matrix."""
    ends, columns, values = _csr(packed)
    return torch.sparse_csr_tensor(
        torch.from_numpy(ends), torch.from_numpy(columns), values, matrix_shape(packed.shape), check_invariants=True
    )


def from_torch_csr(matrix: Tensor, shape: Sequence[int] | None = None) -> Packed:
    """A `torch.sparse_csr` matrix as a packed CSR tensor."""
    ends, columns = matrix.crow_indices().numpy(), matrix.col_indices().numpy()
    return _packed(matrix.values().detach(), columns, ends, tuple(matrix.shape), shape)


def _csr(packed: Packed) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Row pointers and columns as int64, values."""
    rows, columns = matrix_shape(packed.shape)
    if packed.layout == "dense":
        where, values = np.arange(rows * columns), packed.parts[""].reshape(-1)
    else:
        where, values = positions(packed), packed.parts["values"]
    ends = np.searchsorted(where, np.arange(rows + 1) * columns)
    return ends.astype(np.int64), (where % columns).astype(np.int64), values


def _packed(
    values: Tensor, columns: np.ndarray, ends: np.ndarray, found: tuple[int, ...], shape: Sequence[int] | None
) -> Packed:
    wanted = tuple(shape or found)
    if matrix_shape(wanted) != tuple(found):
        raise ConfigurationError(f"a matrix of {tuple(found)} is no tensor of shape {wanted}")
    kind = np.uint16 if found[1] < 2**16 else np.int32
    parts = {"values": values} | {
        name: torch.from_numpy(part.astype(kind)) for name, part in (("columns", columns), ("counts", np.diff(ends)))
    }
    packed = Packed("csr", wanted, parts)
    check("from outside", packed)
    return packed
