"""One topology update: the algorithm box of the paper, as a pure function from masks to masks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology.grow import Grow
from regrow.topology.prune import Pruning
from regrow.topology.redistribute import Redistribute
from regrow.topology.view import Update


@dataclass(frozen=True)
class Change:
    """What one update did to each layer: entries removed, entries grown (possibly the same), and the new masks."""

    masks: list[Tensor]
    removed: list[Tensor]
    grown: list[Tensor]


def rewire(update: Update, prune: Pruning | None, redistribute: Redistribute | None, grow: Grow | None) -> Change:
    """Prune, share the freed budget between layers, grow.

    (a) statistics and (b) pruning use the masks before the update; (c) the freed budget R is allocated with capacities;
    (d) growth chooses among what is missing after pruning. The budget afterwards is the one before, or ``update.targets``.
    """
    layers = update.layers
    removed = prune(update) if prune else [torch.zeros_like(layer.mask) for layer in layers]
    for layer, gone in zip(layers, removed, strict=True):
        layer.removed = count_of(gone)
    if grow is None:
        grown = [torch.zeros_like(layer.mask) for layer in layers]
    else:
        grown = grow(layers, removed, _growth(update, removed, redistribute, grow))
    return Change([(v.mask & ~r) | g for v, r, g in zip(layers, removed, grown, strict=True)], removed, grown)


def to_masks(update: Update, masks: list[Tensor]) -> Change:
    """The change that leads to given masks, for methods that choose masks directly."""
    pairs = list(zip(update.layers, masks, strict=True))
    return Change(masks, [v.mask & ~m for v, m in pairs], [m & ~v.mask for v, m in pairs])


def _growth(update: Update, removed: list[Tensor], redistribute: Redistribute | None, grow: Grow) -> list[int]:
    layers = update.layers
    ends = update.targets if update.targets is not None else [layer.nnz for layer in layers]
    after = [layer.nnz - layer.removed for layer in layers]
    if redistribute is None:
        return [max(0, end - left) for end, left in zip(ends, after, strict=True)]
    total = sum(ends) - sum(after)
    rooms = [grow.room(view, gone) for view, gone in zip(layers, removed, strict=True)]
    capacity = [count_of(grow.preferred(view, room)) for view, room in zip(layers, rooms, strict=True)]
    if sum(capacity) < total:
        capacity = [count_of(room) for room in rooms]
    return redistribute(layers, total, capacity)
