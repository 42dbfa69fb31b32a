"""Marks: where a boolean tensor is true, and how often; and the same for tensors that are too large, or too empty, to exist."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Marks:
    """Marked places of a shape, without a tensor of that shape: the ascending flat positions of those that are marked, or are not.

    Args:
        shape: of the tensor that is not there.
        listed: int64 positions, ascending, each once.
        inverted: whether all *other* places are marked.

    Example:
        >>> odd = Marks(torch.Size([2, 3]), torch.tensor([1, 3, 5]))
        >>> (~odd & ~Marks(odd.shape, torch.tensor([0]))).positions.tolist()
        [2, 4]
    """

    __slots__ = ("inverted", "listed", "shape")

    def __init__(self, shape: torch.Size, listed: Tensor, inverted: bool = False) -> None:
        self.shape, self.listed, self.inverted = shape, listed, inverted

    @property
    def positions(self) -> Tensor:
        """Where they are, ascending."""
        return self.pick(torch.arange(self.count)) if self.inverted else self.listed

    @property
    def count(self) -> int:
        """How many there are."""
        return self.shape.numel() - len(self.listed) if self.inverted else len(self.listed)

    def pick(self, ranks: Tensor) -> Tensor:
        """Positions of the marks with these ranks, counted from 0 in ascending order."""
        if not self.inverted:
            return self.listed[ranks]
        before = self.listed - torch.arange(len(self.listed))  # marks before each listed position
        return ranks + torch.searchsorted(before, ranks, right=True)

    def dense(self) -> Tensor:
        """As a boolean tensor."""
        full = torch.full((self.shape.numel(),), self.inverted)
        full[self.listed] = not self.inverted
        return full.view(self.shape)

    def __contains__(self, position: int) -> bool:
        return bool(among(self.listed, torch.tensor([position]))[0]) != self.inverted

    def __invert__(self) -> Marks:
        return Marks(self.shape, self.listed, not self.inverted)

    def __and__(self, other: Marks) -> Marks:
        if self.inverted and other.inverted:
            return Marks(self.shape, _union(self.listed, other.listed), True)
        one, two = (other, self) if self.inverted else (self, other)
        return Marks(self.shape, one.listed[among(two.listed, one.listed) != two.inverted])

    def __or__(self, other: Marks) -> Marks:
        return ~(~self & ~other)

    def __repr__(self) -> str:
        """One line."""
        return f"Marks({self.count:,} of {tuple(self.shape)})"


def among(listed: Tensor, positions: Tensor) -> Tensor:
    """Which of some positions are in an ascending list."""
    if not len(listed):
        return torch.zeros(len(positions), dtype=torch.bool)
    places = torch.searchsorted(listed, positions).clamp_(max=len(listed) - 1)
    return listed[places] == positions


def placed(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
    """The values at the wanted positions, of those known at ascending ones; zero where none is known."""
    found = values.new_zeros(len(wanted))
    hit = among(known, wanted)
    found[hit] = values[torch.searchsorted(known, wanted[hit])]
    return found


def _union(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b[~among(a, b)]]).sort().values


def positions(marks: Tensor) -> Tensor:
    """Flat logical indices of the marked entries, ascending, whatever the memory layout.

    Example:
        >>> positions(torch.tensor([[True, False], [False, True]])).tolist()
        [0, 3]
    """
    flat = marks.reshape(-1)
    if flat.is_cpu:  # numpy needs a third of torch's time
        return torch.from_numpy(np.flatnonzero(flat.numpy()))
    return flat.nonzero().squeeze(1)


def count_of(marks: Tensor | Marks) -> int:
    """How many entries are marked."""
    if isinstance(marks, Marks):
        return marks.count
    return int(np.count_nonzero(marks.numpy())) if marks.is_cpu else int(marks.count_nonzero())
