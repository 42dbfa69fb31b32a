"""Marks: where a boolean tensor is true, and how often; and the same for tensors that are too large, or too empty, to exist."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor

from regrow import native


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

    def within(self, first: int, count: int) -> Tensor:
        """Which of ``count`` places from ``first`` on are marked, as a boolean vector."""
        inside = torch.full((count,), self.inverted)
        begin, end = torch.searchsorted(self.listed, torch.tensor([first, first + count])).tolist()
        inside[self.listed[begin:end] - first] = not self.inverted
        return inside

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
    return places(listed, positions) >= 0


def placed(values: Tensor, known: Tensor, wanted: Tensor) -> Tensor:
    """The values at the wanted positions, of those known at ascending ones; zero where none is known."""
    return taken(values, places(known, wanted))


def taken(values: Tensor, where: Tensor) -> Tensor:
    """The values at these indices, zero at negative ones: see :func:`places`."""
    if not len(values):
        return values.new_zeros(len(where))
    return values[where.clamp(min=0)].masked_fill_(where < 0, 0)


def places(listed: Tensor, wanted: Tensor) -> Tensor:
    """The index of each wanted position in an ascending list; -1 where it is not in it.

    Example:
        >>> places(torch.tensor([2, 5, 7]), torch.tensor([5, 6])).tolist()
        [1, -1]
    """
    if not len(listed):
        return torch.full((len(wanted),), -1)
    if not native.available():
        found = torch.searchsorted(listed, wanted).clamp_(max=len(listed) - 1)
        return torch.where(listed[found] == wanted, found, -1)
    listed, wanted = _plain(listed), _plain(wanted)
    found = torch.empty_like(wanted)
    native.call("find_places", torch.float32, listed, len(listed), wanted, len(wanted), found)
    return found


def _union(a: Tensor, b: Tensor) -> Tensor:
    if not native.available():
        return torch.cat([a, b[~among(a, b)]]).sort().values
    a, b, count = _plain(a), _plain(b), ctypes.c_int64()
    both = torch.empty(len(a) + len(b), dtype=torch.int64)
    native.call("unite", torch.float32, a, len(a), b, len(b), both, ctypes.addressof(count))
    return both[: count.value] if count.value == len(both) else both[: count.value].clone()


def _plain(listed: Tensor) -> Tensor:
    return listed.to(torch.int64).contiguous()


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


def count_common(one: Tensor | Marks, two: Tensor | Marks) -> int:
    """How many entries are marked in both, which are of one kind.

    Example:
        >>> count_common(Marks(torch.Size([9]), torch.tensor([2, 5, 7])), Marks(torch.Size([9]), torch.tensor([5, 6])))
        1
    """
    if isinstance(one, Marks) and isinstance(two, Marks) and not (one.inverted or two.inverted):
        few, many = sorted((one.listed, two.listed), key=len)
        return int(among(many, few).count_nonzero())
    return count_of(one & two)  # type: ignore[operator]


def count_of(marks: Tensor | Marks) -> int:
    """How many entries are marked."""
    if isinstance(marks, Marks):
        return marks.count
    return int(np.count_nonzero(marks.numpy())) if marks.is_cpu else int(marks.count_nonzero())
