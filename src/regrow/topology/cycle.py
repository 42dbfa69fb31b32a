"""One topology update: the algorithm box of the paper, as a pure function from masks to masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology import compute
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, Pruning
from regrow.topology.redistribute import Redistribute
from regrow.topology.score import magnitude, scores_of
from regrow.topology.select import smallest
from regrow.topology.view import Update


@dataclass(frozen=True)
class Change:
    """What one update did to each layer: entries removed, entries grown (possibly the same), and the new masks.

    In compact storage masks and grown entries are :class:`regrow.marks.Marks`; removed ones are marked in the vector of present weights.

    ``weights`` and ``biases``, where given, are new values: what is left makes up for what is gone, or grown weights start somewhere.
    """

    masks: list[Any]
    removed: list[Any]
    grown: list[Any]
    weights: list[Tensor] | None = None
    biases: list[Tensor | None] | None = None


def rewire(update: Update, prune: Pruning | None, redistribute: Redistribute | None, grow: Grow | None) -> Change:
    """Prune, share the freed budget between layers, grow.

    (a) statistics and (b) pruning use the masks before the update; (c) the freed budget R is allocated with capacities;
    (d) growth chooses among what is missing after pruning. The budget afterwards is the one before, or ``update.targets``. With a
    limit in compute the shares are priced; where growth alone cannot keep it, layers give more back.
    """
    layers = update.layers
    removed = prune(update) if prune else [torch.zeros_like(layer.mask) for layer in layers]
    _note_removed(update, removed)
    if grow is None:
        grown = [layer.nothing() for layer in layers]
    else:
        counts = _growth(update, removed, redistribute, grow)
        if counts is None:
            removed, counts = _moved(update, removed, prune)
            _note_removed(update, removed)
        grown = grow(layers, removed, counts)
    return Change([v.after(r, g) for v, r, g in zip(layers, removed, grown, strict=True)], removed, grown)


def to_masks(update: Update, masks: list[Any]) -> Change:
    """The change that leads to given masks, for methods that choose masks directly."""
    pairs = list(zip(update.layers, masks, strict=True))
    return Change(masks, [view.lost(mask) for view, mask in pairs], [mask & ~view.before for view, mask in pairs])


def _note_removed(update: Update, removed: list[Tensor]) -> None:
    for layer, gone in zip(update.layers, removed, strict=True):
        layer.removed = count_of(gone)


def _growth(update: Update, removed: list[Tensor], redistribute: Redistribute | None, grow: Grow) -> list[int] | None:
    """How many weights each layer grows; None if no growth of what is missing keeps the limit."""
    layers = update.layers
    ends = _ends(update)
    after = [layer.nnz - layer.removed for layer in layers]
    if redistribute is None:
        counts = [max(0, end - left) for end, left in zip(ends, after, strict=True)]
        return counts if _affordable(update, [n + left for n, left in zip(counts, after, strict=True)]) else None
    total = sum(ends) - sum(after)
    rooms = [grow.room(view, gone) for view, gone in zip(layers, removed, strict=True)]
    capacity = [count_of(grow.preferred(view, room)) for view, room in zip(layers, rooms, strict=True)]
    if sum(capacity) < total:
        capacity = [count_of(room) for room in rooms]
    plain = redistribute(layers, total, capacity)
    if _affordable(update, [n + left for n, left in zip(plain, after, strict=True)]):
        return plain
    return _priced_growth(update, redistribute, after, total, capacity)


def _priced_growth(
    update: Update, redistribute: Redistribute, after: list[int], total: int, capacity: list[int]
) -> list[int] | None:
    costs, bounds = _costs(update), compute.Bounds([0] * len(capacity), capacity)
    room = (update.limit or 0.0) - compute.cost_of(after, costs)
    if room < 0 or not compute.affordable(compute.cheapest(total, costs, bounds), costs, room):
        return None
    shares = redistribute.shares(update.layers)
    counts, update.price = compute.within(shares, total, costs, room, bounds)
    return counts


def _moved(update: Update, removed: list[Tensor], prune: Pruning | None) -> tuple[list[Tensor], list[int]]:
    """More removed where present weights cost too much, so that the layers keep the limit: (removed, counts to grow)."""
    layers, costs = update.layers, _costs(update)
    bounds = compute.Bounds([1] * len(layers), [layer.most for layer in layers])
    present = [float(layer.nnz) for layer in layers]
    ends, update.price = compute.within(present, sum(_ends(update)), costs, update.limit or 0.0, bounds)
    score = prune.score if isinstance(prune, Prune) else magnitude
    more = []
    for layer, gone, end in zip(layers, removed, ends, strict=True):
        surplus = layer.nnz - layer.removed - end
        extra = smallest(scores_of(score, layer), surplus, layer.mask & ~gone) if surplus > 0 else gone
        more.append(gone | extra)
    counts = [end - (layer.nnz - count_of(gone)) for end, layer, gone in zip(ends, layers, more, strict=True)]
    return more, counts


def _ends(update: Update) -> list[int]:
    return update.targets if update.targets is not None else [layer.nnz for layer in update.layers]


def _costs(update: Update) -> list[float]:
    return [layer.cost for layer in update.layers]


def _affordable(update: Update, counts: list[int]) -> bool:
    return update.limit is None or compute.affordable(counts, _costs(update), update.limit)
