"""Which weights of a parameter exist: an immutable set of positions, and the one key of everything that is derived from it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from regrow import gaps
from regrow.errors import StateError
from regrow.marks import Marks, count_of, positions
from regrow.topology.journal import pack

_versions = itertools.count()
_LARGE = 2**31
NARROW = 2**16
"""Rows up to which length have their columns in 16 bits."""
Derived = TypeVar("Derived")


class Support:
    """The present positions of one parameter; values are kept elsewhere.

    A topology update makes a new one, nothing ever changes one. So whatever is computed from it (positions, native lists, what ranks
    exchange) is kept with it by :meth:`derive`, and is gone when the last pass that was made with it is.

    Args:
        mask: true where a weight exists. It is taken over: nobody may write to it from now on. Of :class:`Marks` lists are kept, row
            pointer and columns, and a mask is made only for those who look at it.

    Example:
        >>> support = Support(torch.tensor([[True, False], [False, True]]))
        >>> support.nnz, support.positions.tolist()
        (2, [0, 3])
    """

    def __init__(self, mask: Tensor | Marks) -> None:
        self.version = next(_versions)
        self.shape, self.nnz = mask.shape, count_of(mask)
        self._kept: dict[Hashable, Any] = {}
        self._lock = threading.RLock()  # one derivation may ask for another
        self._mask: Tensor | None = None
        if isinstance(mask, Marks):
            self._rows, self._columns = _lists(mask)
            return
        if mask.dtype != torch.bool:
            raise TypeError(f"a support is made of a bool mask, got {mask.dtype}")
        self._mask, self._written = mask, mask._version

    @property
    def numel(self) -> int:
        """How many positions there are, present or not."""
        return self.shape.numel()

    @property
    def is_compact(self) -> bool:
        """Whether it is kept as lists of positions, without a mask."""
        return self._mask is None

    @property
    def mask(self) -> Tensor:
        """True where a weight exists. Read only; made anew for each look where positions are kept as lists."""
        return self.marks.dense() if self._mask is None else self._mask

    @property
    def marks(self) -> Marks:
        """The positions as :class:`Marks`."""
        return Marks(self.shape, self._listed() if self.is_compact else positions(self.mask))

    @property
    def positions(self) -> Tensor:
        """Flat logical positions, ascending; 32 bits each where that is enough and they are kept."""
        if self.is_compact:
            return self._listed()
        kind = torch.int32 if self.numel < _LARGE else torch.int64
        return self.derive("positions", lambda: positions(self.mask).to(kind))

    @property
    def lists(self) -> tuple[Tensor, Tensor]:
        """Row pointer (int64) and the column of each present weight in its row (int32)."""
        return self._rows, self._columns.to(torch.int32)

    @property
    def bits(self) -> Tensor:
        """The mask as bits in a uint8 vector: how it is saved, and how operators are given it."""
        return self.derive("bits", lambda: _bits(self.marks) if self.is_compact else pack(self.mask))

    @property
    def nbytes(self) -> int:
        """Memory that tells where weights are: a byte per position as a mask, 2 or 4 per present weight as lists."""
        return self._rows.nbytes + self._columns.nbytes if self._mask is None else self._mask.nbytes

    def fingerprint(self) -> str:
        """A hash of the positions, however they are kept."""

        def digest() -> str:
            return hashlib.blake2b(gaps.encode(self.marks.positions).numpy().tobytes(), digest_size=16).hexdigest()

        return self.derive("fingerprint", digest)

    def lies_like(self, tensor: Tensor) -> Support:
        """This support if its mask lies in memory as ``tensor`` does, else one of the same positions that does."""
        if self._mask is None or self._mask.stride() == tensor.stride():
            return self
        return Support(torch.empty_like(tensor, dtype=torch.bool, requires_grad=False).copy_(self._mask))

    def band(self, rows: slice) -> tuple[slice, Tensor]:
        """The present weights of some rows, where positions are kept as lists: which they are, and their flat positions in the band."""
        with _unwatched():
            begins = self._rows[rows.start : rows.stop + 1]
            mine = slice(int(begins[0]), int(begins[-1]))
            inner = torch.repeat_interleave(torch.arange(len(begins) - 1), begins.diff())
            return mine, inner.mul_(self._length).add_(self._columns[mine].to(torch.int64))

    @property
    def _length(self) -> int:
        return self.numel // max(1, self.shape[0])

    def _listed(self) -> Tensor:
        return self.band(slice(0, self.shape[0]))[1]

    def derive(self, key: Hashable, make: Callable[[], Derived]) -> Derived:
        """What ``make`` computes of these positions: once, also if several threads ask."""
        found = self._kept.get(key)
        if found is None:
            with self._lock:
                found = self._kept.get(key)
                if found is None:
                    with _unwatched():
                        found = self._kept[key] = make()
        return found

    def refuse_written(self, name: str) -> None:
        """An error if somebody wrote into the mask."""
        if self._mask is not None and self._mask._version != self._written:
            raise StateError(
                f"somebody wrote into the mask of {name}, which is read only: set weights to zero and call handle.masks_from_zeros() to "
                "choose masks by hand"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {"mask": self._mask} if self._mask is not None else {"marks": (self.shape, self._listed())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Support.__init__(self, state["mask"] if "mask" in state else Marks(*state["marks"]))

    def __repr__(self) -> str:
        """One line."""
        return f"Support({self.nnz:,} of {tuple(self.shape)}, version {self.version})"


def _unwatched() -> contextlib.AbstractContextManager:
    """Inside, tensors are real ones: what is derived outlives a FakeTensorMode in which somebody asks for it first."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else contextlib.nullcontext()


def _lists(marks: Marks) -> tuple[Tensor, Tensor]:
    """Row pointer and columns; 16 bits for a column where rows are that short."""
    found, length = marks.positions, marks.shape.numel() // max(1, marks.shape[0])
    rows = torch.searchsorted(found, torch.arange(marks.shape[0] + 1) * length)
    columns = found % max(1, length)
    return rows, columns.to(torch.uint16 if length <= NARROW else torch.int32)


def _bits(marks: Marks) -> Tensor:
    """`pack` without a mask."""
    found = marks.positions.numpy()
    bits = np.zeros((marks.shape.numel() + 7) // 8, dtype=np.uint8)
    np.bitwise_or.at(bits, found >> 3, (128 >> (found & 7)).astype(np.uint8))
    return torch.from_numpy(bits)
