"""What comes: which missing weights a topology update adds, and how they start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regrow.marks import Marks, count_of, positions
from regrow.topology.bands import CompactView
from regrow.topology.redistribute import allocate
from regrow.topology.score import Score, random, scores_anywhere, scores_of
from regrow.topology.select import at_random, largest, largest_overall
from regrow.topology.view import LayerView
from regrow.topology.warmup import note_born


@dataclass(frozen=True)
class Grow:
    """Add the missing weights with the largest score.

    Args:
        score: one number per weight; the largest come.
        select: top-k within each ``layer``, over the whole network (``global``), or spread over output units in
            proportion to the unit's mean score first (``neuron``).
        candidates: every ``missing`` weight, also one pruned a moment ago; weights ``not-just-pruned``, or ``never-active-first``, as
            long as there are any.
        just_pruned: a weight pruned and regrown in one update may ``keep`` its value and state, or restart at ``zero``, without state
            unless grown weights are seeded: its own momentum is better than a seed.
        value: grown weights start at 0, or at this distance from 0 on the side of their fixed sign (DEEP-R).
        state: optimizer state of grown weights starts at ``zero``, from what the growth window saw (``seed``), or so only where second
            moments keep the first step small (``normalised``: the Adam family).
        warms_up: remember which weights grew, for :func:`regrow.topology.warmup.warm_up`.
    """

    score: Score = random
    select: Literal["layer", "global", "neuron"] = "layer"
    candidates: Literal["missing", "not-just-pruned", "never-active-first"] = "missing"
    just_pruned: Literal["keep", "zero"] = "keep"
    value: float = 0.0
    state: Literal["zero", "seed", "normalised"] = "zero"
    warms_up: bool = False

    def room(self, layer: LayerView, removed: Tensor) -> Any:
        """The positions that may grow: everything missing after pruning."""
        return layer.room(removed)

    def preferred(self, layer: LayerView, room: Any) -> Any:
        """The positions that grow first; the others of ``room`` only when these do not suffice."""
        if self.candidates == "not-just-pruned":
            return room & ~layer.before
        if self.candidates == "never-active-first" and layer.ever_active is not None:
            return room & ~layer.ever_active()
        return room

    def __call__(self, layers: Sequence[LayerView], removed: Sequence[Tensor], counts: Sequence[int]) -> list[Any]:
        """Mark the weights to grow: ``counts[i]`` in layer i, or ``sum(counts)`` anywhere if ``select`` is global."""
        rooms = [self.room(layer, gone) for layer, gone in zip(layers, removed, strict=True)]
        if self.select == "global":
            grown = self._anywhere(layers, rooms, sum(counts))
        else:
            grown = [self._in_layer(layer, room, n) for layer, room, n in zip(layers, rooms, counts, strict=True)]
        if self.warms_up:
            note_born(layers, grown)
        return grown

    def _in_layer(self, layer: LayerView, room: Any, count: int) -> Any:
        if count <= 0:
            return layer.nothing()
        if self.select == "neuron":
            return _by_neuron(layer, self.score, room, count)
        take = self._taker(layer)
        best = self.preferred(layer, room)
        at_first = min(count, count_of(best))
        first = take(at_first, best)
        return first | take(count - at_first, room & ~first) if count > at_first else first

    def _taker(self, layer: LayerView) -> Callable[[int, Any], Any]:
        if self.score is random:  # an order of all weights would be drawn for nothing
            return lambda count, among: at_random(count, among, layer.rng("grow", layer.index))
        scores = scores_anywhere(self.score, layer)
        return lambda count, among: largest(scores, count, among)

    def _anywhere(self, layers: Sequence[LayerView], rooms: list[Any], total: int) -> list[Any]:
        best = [self.preferred(layer, room) for layer, room in zip(layers, rooms, strict=True)]
        enough = sum(count_of(b) for b in best) >= total
        return largest_overall(
            [scores_anywhere(self.score, layer) for layer in layers], total, best if enough else rooms
        )


def _by_neuron(layer: LayerView, score: Score, room: Any, count: int) -> Any:
    """Split the count over output units by their mean score, then take the largest inside each unit."""
    if isinstance(layer, CompactView):
        return _by_neuron_in_bands(layer, score, room, count)
    by_unit, free = layer.units(scores_of(score, layer)), layer.units(room)
    counts = allocate(by_unit.double().mean(1).tolist(), count, free.sum(1).tolist())
    return layer.from_units(_inside_units(by_unit, free, counts))


def _by_neuron_in_bands(layer: CompactView, score: Score, room: Marks, count: int) -> Marks:
    """The same in compact storage, whose rows are output units: once through the bands for means, once more for the choice."""
    means: list[float] = []
    free: list[int] = []
    for first, band in layer.bands():
        means += band.units(scores_of(score, band)).double().mean(1).tolist()
        free += room.within(first, band.numel).view(len(band.mask), -1).sum(1).tolist()
    counts, chosen = allocate(means, count, free), []
    for first, band in layer.bands():
        mine, counts = counts[: len(band.mask)], counts[len(band.mask) :]
        by_unit = band.units(scores_of(score, band))
        marks = _inside_units(by_unit, room.within(first, band.numel).view_as(by_unit), mine)
        chosen.append(positions(marks) + first)
    return Marks(room.shape, torch.cat(chosen))


def _inside_units(scores: Tensor, free: Tensor, counts: Sequence[int]) -> Tensor:
    return torch.stack([largest(s, n, f) for s, f, n in zip(scores, free, counts, strict=True)])
