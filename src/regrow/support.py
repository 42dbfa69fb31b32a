"""Which weights of a parameter exist: an immutable set of positions, and the one key of everything that is derived from it."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

from regrow.errors import StateError
from regrow.marks import count_of, positions
from regrow.topology.journal import pack

_versions = itertools.count()
_LARGE = 2**31
Derived = TypeVar("Derived")


class Support:
    """The present positions of one parameter; values are kept elsewhere.

    A topology update makes a new one, nothing ever changes one. So whatever is computed from it (positions, native lists, what ranks
    exchange) is kept with it by :meth:`derive`, and is gone when the last pass that was made with it is.

    Args:
        mask: true where a weight exists. It is taken over: nobody may write to it from now on.

    Example:
        >>> support = Support(torch.tensor([[True, False], [False, True]]))
        >>> support.nnz, support.positions.tolist()
        (2, [0, 3])
    """

    def __init__(self, mask: Tensor) -> None:
        if mask.dtype != torch.bool:
            raise TypeError(f"a support is made of a bool mask, got {mask.dtype}")
        self.version = next(_versions)
        self.shape, self.nnz = mask.shape, count_of(mask)
        self._mask, self._written = mask, mask._version
        self._kept: dict[Hashable, Any] = {}
        self._lock = threading.RLock()  # one derivation may ask for another

    @property
    def numel(self) -> int:
        """How many positions there are, present or not."""
        return self.shape.numel()

    @property
    def mask(self) -> Tensor:
        """True where a weight exists. Read only."""
        return self._mask

    @property
    def positions(self) -> Tensor:
        """Flat logical positions, ascending; 32 bits each where that is enough."""
        kind = torch.int32 if self.numel < _LARGE else torch.int64
        return self.derive("positions", lambda: positions(self._mask).to(kind))

    @property
    def bits(self) -> Tensor:
        """The mask as bits in a uint8 vector: how it is saved, and how operators are given it."""
        return self.derive("bits", lambda: pack(self._mask))

    def fingerprint(self) -> str:
        """A hash of the positions."""
        return self.derive(
            "fingerprint", lambda: hashlib.blake2b(self.bits.numpy().tobytes(), digest_size=16).hexdigest()
        )

    def lies_like(self, tensor: Tensor) -> Support:
        """This support if its mask lies in memory as ``tensor`` does, else one of the same positions that does."""
        if self._mask.stride() == tensor.stride():
            return self
        return Support(torch.empty_like(tensor, dtype=torch.bool, requires_grad=False).copy_(self._mask))

    def derive(self, key: Hashable, make: Callable[[], Derived]) -> Derived:
        """What ``make`` computes of these positions: once, also if several threads ask."""
        found = self._kept.get(key)
        if found is None:
            with self._lock:
                found = self._kept.get(key)
                if found is None:
                    found = self._kept[key] = make()
        return found

    def refuse_written(self, name: str) -> None:
        """An error if somebody wrote into the mask."""
        if self._mask._version != self._written:
            raise StateError(
                f"somebody wrote into the mask of {name}, which is read only: set weights to zero and call handle.masks_from_zeros() to "
                "choose masks by hand"
            )

    def __getstate__(self) -> dict[str, Tensor]:
        return {"mask": self._mask}

    def __setstate__(self, state: dict[str, Tensor]) -> None:
        Support.__init__(self, state["mask"])

    def __repr__(self) -> str:
        """One line."""
        return f"Support({self.nnz:,} of {tuple(self.shape)}, version {self.version})"
