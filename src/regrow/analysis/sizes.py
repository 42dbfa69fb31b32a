"""How many bytes, how many empty channels: the counts of a sparse layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Storage:
    """Bytes of a set of weights in three formats."""

    dense: int
    bitmask: int
    csr: int

    def __add__(self, other: Storage) -> Storage:
        """Bytes of both together."""
        return Storage(self.dense + other.dense, self.bitmask + other.bitmask, self.csr + other.csr)


def storage(shape: Sequence[int], nonzeros: int) -> Storage:
    """fp32 bytes of one weight of shape [out, ...]: dense, one bit per weight + values, CSR with one row per output.

    A column index takes the fewest of 1, 2 or 4 bytes that can number a row's weights; a row pointer takes 4.

    Example:
        >>> storage((300, 784), 11760)
        Storage(dense=940800, bitmask=76440, csr=71764)
    """
    numel = 1
    for size in shape:
        numel *= size
    rows = shape[0] if shape else 1
    values = _FLOAT_BYTES * nonzeros
    index = nonzeros * _index_bytes(numel // max(rows, 1))
    return Storage(_FLOAT_BYTES * numel, -(-numel // 8) + values, values + index + 4 * (rows + 1))


def _index_bytes(columns: int) -> int:
    return 1 if columns <= 1 << 8 else 2 if columns <= 1 << 16 else 4


@dataclass(frozen=True)
class EmptyChannels:
    """Channels of one layer without a single weight."""

    inputs: int
    outputs: int


def empty_channels(mask: Tensor) -> EmptyChannels:
    """Input channels that nothing reads and output channels that nothing feeds, of a mask [out, in, ...].

    With groups, a weight's input dimension numbers the channels inside a group, and so does the count here.

    Example:
        >>> import torch
        >>> empty_channels(torch.tensor([[True, False], [False, False], [True, False]]))
        EmptyChannels(inputs=1, outputs=1)
    """
    if mask.ndim < 2:
        return EmptyChannels(0, int((~mask).sum()) if mask.ndim else 0)
    flat = mask.reshape(mask.shape[0], mask.shape[1], -1).any(dim=2)
    return EmptyChannels(int((~flat.any(dim=0)).sum()), int((~flat.any(dim=1)).sum()))
