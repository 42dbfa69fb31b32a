"""Ascending positions as bytes: the gaps between them, seven bits in each byte, the eighth set where a gap goes on.

At 5% density that is little more than a byte per weight, however large the layer.
"""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from regrow import native
from regrow.errors import StateError

_BITS = 7
_MOST_BYTES = 9
_OUTSIDE = "saved positions lie outside their layer: the state is damaged"


def encode(positions: Tensor) -> Tensor:
    """Positions as a uint8 vector.

    Example:
        >>> encode(torch.tensor([0, 1, 200])).tolist()
        [0, 0, 198, 1]
    """
    if native.available():
        return _encoded(positions.contiguous())
    gaps = np.diff(positions.numpy(), prepend=-1) - 1
    lengths = np.ones(len(gaps), dtype=np.int64)
    for more in range(1, _MOST_BYTES):
        longer = gaps >> (_BITS * more) > 0
        if not longer.any():
            break
        lengths += longer
    ends = np.cumsum(lengths)
    coded = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for byte in range(int(lengths.max(initial=0))):
        which = lengths > byte
        part = (gaps[which] >> (_BITS * byte)) & 127
        coded[ends[which] - lengths[which] + byte] = part | np.where(lengths[which] > byte + 1, 128, 0)
    return torch.from_numpy(coded)


def decode(coded: Tensor, limit: int) -> Tensor:
    """The inverse of :func:`encode`; an error for bytes that are no positions below ``limit``."""
    bytes_ = coded.numpy()
    if len(bytes_) and bytes_[-1] >= 128:
        raise StateError("saved positions are cut off: the state is damaged")
    if native.available():
        return _decoded(coded.contiguous(), count(coded), limit)
    last = np.flatnonzero(bytes_ < 128)
    starts = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
    lengths = last - starts + 1
    if len(lengths) and lengths.max() > _MOST_BYTES:
        raise StateError("saved positions are damaged")
    gaps = np.zeros(len(starts), dtype=np.int64)
    for byte in range(int(lengths.max(initial=0))):
        which = lengths > byte
        gaps[which] |= (bytes_[starts[which] + byte].astype(np.int64) & 127) << (_BITS * byte)
    found = np.cumsum(gaps + 1) - 1
    if len(found) and (gaps.min() < 0 or gaps.max() >= limit or found[-1] >= limit or found.min() < 0):
        raise StateError(_OUTSIDE)
    return torch.from_numpy(found)


def count(coded: Tensor) -> int:
    """How many positions there are, without a list of them.

    Example:
        >>> count(encode(torch.tensor([0, 1, 200])))
        3
    """
    return int(np.count_nonzero(coded.numpy() < 128))


def _encoded(positions: Tensor) -> Tensor:
    size = ctypes.c_int64()
    native.call("encode_gaps", torch.float32, positions, len(positions), None, ctypes.addressof(size))
    coded = torch.empty(size.value, dtype=torch.uint8)
    native.call("encode_gaps", torch.float32, positions, len(positions), coded, ctypes.addressof(size))
    return coded


def _decoded(coded: Tensor, count: int, limit: int) -> Tensor:
    found, whole = torch.empty(count, dtype=torch.int64), ctypes.c_int64()
    native.call("decode_gaps", torch.float32, coded, len(coded), limit, found, ctypes.addressof(whole))
    if not whole.value:
        raise StateError(_OUTSIDE)
    return found
