"""What goes: which present weights a topology update removes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology import signs
from regrow.topology.score import Score, magnitude, scores_of
from regrow.topology.select import largest, smallest, smallest_overall
from regrow.topology.view import LayerView, Update

Pruning = Callable[[Update], list[Tensor]]
Count = Callable[[Update], list[int]]
"""How many weights each layer loses."""


def fraction(update: Update) -> list[int]:
    """r_i = ceil(p * nnz_i)."""
    return [_ceil_share(update.rate, layer) for layer in update.layers]


def floor_fraction(update: Update) -> list[int]:
    """r_i = floor(p * nnz_i) (RigL and its relatives)."""
    return [math.floor(update.rate * layer.nnz + 1e-9) for layer in update.layers]


def capped_fraction(update: Update) -> list[int]:
    """r_i = ceil(min(p, 1 - density_i) * nnz_i): a layer loses no larger share than it has room to regrow."""
    return [_ceil_share(min(update.rate, _room(layer)), layer) for layer in update.layers]


def gated_fraction(share: Callable[[LayerView], float]) -> Count:
    """The cap of :func:`capped_fraction` only for nearly dense layers (> 80%) whose share exceeds the average.

    This is how the sparse-momentum authors' code reads edge case 2; the paper's text has no gate.
    """

    def count(update: Update) -> list[int]:
        shares = [share(layer) for layer in update.layers]
        average = sum(shares) / len(shares) * (1 + 1e-9)  # an average share is not above it by its rounding
        growing = [mine > average for mine in shares]
        capped = [_room(layer) < 0.2 and grows for layer, grows in zip(update.layers, growing, strict=True)]
        pairs = zip(capped_fraction(update), fraction(update), strict=True)
        return [least if cap else plain for cap, (least, plain) in zip(capped, pairs, strict=True)]

    return count


def down_to_floor(update: Update) -> list[int]:
    """As many as lie above the layer's floor (the density schedule's lower bound)."""
    floors = update.floors if update.floors is not None else update.targets
    if floors is None:
        raise ValueError("down_to_floor needs a method with a density schedule")
    return [max(0, layer.nnz - floor) for layer, floor in zip(update.layers, floors, strict=True)]


@dataclass(frozen=True)
class Prune:
    """Remove the weights with the smallest score.

    ``score`` is one number per weight, ``count`` says how many go in each layer.
    ``select``: within each ``layer``; over the whole network (``global``); or within each layer separately for the
    positive and the negative weights (``sign``, SET), where all that are exactly zero go as well.
    """

    score: Score = magnitude
    count: Count = fraction
    select: Literal["layer", "global", "sign"] = "layer"

    def __call__(self, update: Update) -> list[Tensor]:
        """Mark the weights to remove; at least one weight of every layer stays."""
        if self.select == "global":
            return self._globally(update)
        if self.select == "sign":
            return [self._by_sign(update, layer) for layer in update.layers]
        return [self._by_layer(layer, count) for layer, count in zip(update.layers, self.count(update), strict=True)]

    def _by_layer(self, layer: LayerView, count: int) -> Tensor:
        count = min(count, layer.nnz - 1)
        return smallest(scores_of(self.score, layer), count, layer.mask) if count > 0 else torch.zeros_like(layer.mask)

    def _by_sign(self, update: Update, layer: LayerView) -> Tensor:
        # Weights grown in dead units stay at zero: with neither sign they would never go, and in the end all would be such.
        scores, removed = scores_of(self.score, layer), layer.mask & (layer.weight == 0) & (update.rate > 0)
        for side in (layer.weight > 0, layer.weight < 0):
            among = side & layer.mask
            removed |= smallest(scores, math.floor(update.rate * count_of(among) + 1e-9), among)
        return keep_one(layer, removed, scores)

    def _globally(self, update: Update) -> list[Tensor]:
        layers = update.layers
        scores = [scores_of(self.score, layer) for layer in layers]
        if update.targets is None:
            count = math.ceil(update.rate * sum(layer.nnz for layer in layers) - 1e-9)
        else:
            count = max(0, sum(layer.nnz for layer in layers) - sum(update.targets))
        return globally_smallest(layers, scores, count)


def globally_smallest(layers: list[LayerView], scores: list[Tensor], count: int) -> list[Tensor]:
    """Mark the ``count`` present weights with the smallest scores over all layers, leaving one in each."""
    among = [layer.mask & ~largest(s, 1, layer.mask) for layer, s in zip(layers, scores, strict=True)]
    room = sum(count_of(a) for a in among)
    return smallest_overall(scores, min(count, room), among)


def keep_one(layer: LayerView, removed: Tensor, scores: Tensor) -> Tensor:
    """Take the highest-scored weight back if ``removed`` would empty the layer."""
    if count_of(removed) < layer.nnz:
        return removed
    return removed & ~largest(scores, 1, layer.mask)


@dataclass(frozen=True)
class Threshold:
    """Remove every |w| below one threshold H for all layers, steered to a set point (DSR).

    H halves when more than (1 + tolerance) * target weights fell below it, and doubles when fewer than
    (1 - tolerance) * target did. ``target`` is a number of weights, or a share of all present weights if below 1;
    ``None`` takes the share from the prune rate.
    """

    target: float | None = None
    tolerance: float = 0.1
    start: float = 1e-3

    def __call__(self, update: Update) -> list[Tensor]:
        """Mark the weights below the threshold and move the threshold."""
        height = update.memory.setdefault("threshold", self.start)
        removed = []
        for layer in update.layers:
            scores = magnitude(layer)
            removed.append(keep_one(layer, layer.mask & (scores < height), scores))
        self._steer(update, sum(count_of(r) for r in removed))
        return removed

    def _steer(self, update: Update, count: int) -> None:
        present = sum(layer.nnz for layer in update.layers)
        target = update.rate if self.target is None else self.target
        goal = target * present if target < 1 else target
        if count > (1 + self.tolerance) * goal:
            update.memory["threshold"] /= 2
        elif count < (1 - self.tolerance) * goal:
            update.memory["threshold"] *= 2


def sign_crossing(update: Update) -> list[Tensor]:
    """Remove weights whose sign left the one fixed for their position (DEEP-R: theta < 0)."""
    removed = []
    for layer in update.layers:
        theta = layer.weight * signs.shown(layer)
        removed.append(keep_one(layer, layer.mask & (theta < 0), theta))
    return removed


def _room(layer: LayerView) -> float:
    return layer.missing / layer.numel


def _ceil_share(rate: float, layer: LayerView) -> int:
    return math.ceil(rate * layer.nnz - 1e-9)
