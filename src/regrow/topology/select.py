"""Which entries: exact counts, one tie rule (lowest flat index), selection instead of sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from regrow.marks import Marks, positions
from regrow.topology.bands import BandScores, best

_TAIL = 20  # numpy shuffles a whole range where more than one in so many is drawn


@overload
def largest(scores: Tensor, count: int, among: Tensor) -> Tensor: ...
@overload
def largest(scores: Any, count: int, among: Any) -> Any: ...
def largest(scores: Any, count: int, among: Any) -> Any:
    """Mark the ``count`` entries with the largest score among the entries marked in ``among``.

    Ties at the boundary go to the lowest flat index, so the result never depends on the device or the sort.

    Example:
        >>> largest(torch.tensor([3., 9., 3., 3.]), 2, torch.ones(4, dtype=torch.bool)).tolist()
        [True, True, False, False]
    """
    if isinstance(scores, BandScores) or isinstance(among, Marks):
        return largest_overall([scores], count, [among])[0]
    # Masks of channels_last weights are channels_last themselves: flat indices are logical ones here.
    chosen = torch.zeros_like(among, memory_format=torch.contiguous_format)
    if count <= 0:
        return chosen
    candidates = positions(among)
    chosen.view(-1)[candidates[top(scores.take(candidates), count)]] = True
    return chosen


def smallest(scores: Tensor, count: int, among: Tensor) -> Tensor:
    """Mark the ``count`` entries with the smallest score among the entries marked in ``among``."""
    return largest(-scores, count, among)


@overload
def largest_overall(scores: Sequence[Tensor], count: int, among: Sequence[Tensor]) -> list[Tensor]: ...
@overload
def largest_overall(scores: Sequence[Any], count: int, among: Sequence[Any]) -> list[Any]: ...
def largest_overall(scores: Sequence[Any], count: int, among: Sequence[Any]) -> Any:
    """Mark the ``count`` largest scores over several tensors at once; ties go to the earlier tensor."""
    if scores and isinstance(scores[0], BandScores):
        return best(scores, max(0, count), among, top)
    sizes = [a.numel() for a in among]
    flat = largest(torch.cat([s.reshape(-1) for s in scores]), count, torch.cat([a.reshape(-1) for a in among]))
    return [part.view_as(a) for part, a in zip(flat.split(sizes), among, strict=True)]


def smallest_overall(scores: Sequence[Tensor], count: int, among: Sequence[Tensor]) -> list[Tensor]:
    """Mark the ``count`` smallest scores over several tensors at once; ties go to the earlier tensor."""
    return largest_overall([-s for s in scores], count, among)


def at_random(count: int, among: Any, source: torch.Generator) -> Any:
    """Mark ``count`` of the entries marked in ``among``, each set of them equally likely: only as many numbers as needed are drawn.

    Example:
        >>> at_random(2, torch.tensor([True, False, True]), torch.Generator()).tolist()
        [True, False, True]
    """
    draws = np.random.default_rng(source.initial_seed())
    if isinstance(among, Marks):
        ranks = torch.from_numpy(_ranks(draws, among.count, count)).sort().values
        return Marks(among.shape, among.pick(ranks))
    chosen = torch.zeros_like(among, memory_format=torch.contiguous_format)
    candidates = positions(among)
    drawn = torch.from_numpy(draws.choice(len(candidates), count, replace=False, shuffle=False))
    chosen.view(-1)[candidates[drawn.to(candidates.device)]] = True
    return chosen


def _ranks(draws: np.random.Generator, total: int, count: int) -> np.ndarray:
    """``draws.choice(total, count, replace=False, shuffle=False)`` in memory for ``count`` numbers, where numpy takes it for all."""
    if total <= 10_000 or count <= total // _TAIL:
        return draws.choice(total, count, replace=False, shuffle=False)
    ends = np.arange(total - 1, total - count - 1, -1)
    moved: dict[int, int] = {}
    chosen = np.empty(count, dtype=np.int64)
    for i, (end, at) in enumerate(zip(ends.tolist(), draws.integers(0, ends, endpoint=True).tolist(), strict=True)):
        chosen[i] = moved.get(at, at)
        moved[at] = moved.get(end, end)
    return chosen


def top(values: Tensor, count: int) -> Tensor:
    """Indices of the ``count`` largest values, ties to the lowest index."""
    total = values.numel()
    if count > total:
        raise ValueError(f"cannot select {count} entries out of {total} candidates")
    if count == total:
        return torch.arange(total, device=values.device)
    boundary = values.topk(count, sorted=False).values.min()  # kthvalue takes longer, several times for few
    above = positions(values > boundary)
    ties = positions(values == boundary)
    return torch.cat([above, ties[: count - above.numel()]])
