"""Layers that store present weights only, as criteria see them: a vector of those, and the rest in bands of rows, one at a time.

Present weights are pruned and compared by vectors in the order of their positions. What looks at missing weights too (growth) is asked
about one band after the other, each as an ordinary dense layer, and the best so far are kept: exact, with the same tie rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from regrow import randomness
from regrow.marks import Marks, among
from regrow.support import Support
from regrow.topology.view import Evidence, LayerView

Criterion = Callable[[LayerView], Tensor]


class BandedEvidence(Evidence, Protocol):
    """Gradient and momentum of present weights as vectors; those of all weights of some rows."""

    bands: list[slice]
    reach: Support | None
    """What a growth window looked at, where that is not every weight."""

    def band(self, rows: slice) -> Evidence: ...  # noqa: D102


@dataclass(eq=False)
class CompactView(LayerView):
    """``weight``, ``momentum`` and ``gradient`` are vectors of the weights in ``support``; ``mask`` tells which of them are present."""

    support: Support | None = None

    @property
    def _support(self) -> Support:
        assert self.support is not None
        return self.support

    @property
    def _evidence(self) -> BandedEvidence:
        return self.evidence  # type: ignore[return-value]

    @property
    def numel(self) -> int:
        """Number of positions."""
        return self._support.numel

    @property
    def before(self) -> Marks:
        """Which weights existed before the update."""
        return self.marks(self.mask)

    def marks(self, chosen: Tensor) -> Marks:
        """Where the chosen ones of the weights in ``support`` are."""
        return Marks(self._support.shape, self._support.positions[chosen])

    def room(self, removed: Tensor) -> Marks:
        """What is missing once ``removed`` is gone; of a window of candidates, what it looked at."""
        missing, reach = ~self.marks(self.mask & ~removed), self._evidence.reach
        return missing if reach is None else missing & reach.marks

    @property
    def where(self) -> Tensor:
        """Flat positions of the weights that are shown."""
        return self._support.positions

    @property
    def most(self) -> int:
        """How many weights the layer can end with."""
        reach = self._evidence.reach
        return self.numel if reach is None else reach.nnz

    def after(self, removed: Tensor, grown: Marks) -> Marks:
        """Which weights exist after the update."""
        return self.marks(self.mask & ~removed) | grown

    def lost(self, mask: Marks) -> Tensor:
        """Which present weights are not in a new mask."""
        return self.mask & ~among(mask.positions, self.where)

    def nothing(self) -> Marks:
        """No place of the layer marked."""
        return Marks(self._support.shape, torch.empty(0, dtype=torch.int64))

    def bands(self) -> Iterator[tuple[int, LayerView]]:
        """The first position of each band of rows, and the band as a dense layer."""
        evidence = self._evidence
        draws: dict[str, torch.Generator] = {}
        width = self.numel // self._support.shape[0]
        for rows in evidence.bands:
            which, places = self._support.band(rows)
            shape = (rows.stop - rows.start, *self._support.shape[1:])
            weight = self.weight.new_zeros(shape)
            weight.view(-1)[places] = self.weight[which]
            mask = torch.zeros(shape, dtype=torch.bool)
            mask.view(-1)[places] = self.mask[which]
            yield rows.start * width, self._band(weight, mask, evidence.band(rows), draws)

    def _band(self, weight: Tensor, mask: Tensor, evidence: Evidence, draws: dict[str, torch.Generator]) -> LayerView:
        alike = (
            "name",
            "index",
            "rng",
            "place",
            "output_dim",
            "momentum_scale",
            "cost",
            "memory",
            "side",
            "shared",
            "removed",
        )
        kept = {name: getattr(self, name) for name in alike}
        return _Band(weight=weight, mask=mask, evidence=evidence, draws=draws, **kept)


@dataclass(eq=False)
class _Band(LayerView):
    draws: dict[str, torch.Generator] | None = None

    def random(self, purpose: str) -> Tensor:
        """The band's part of the draws of the whole layer."""
        assert self.draws is not None
        if purpose not in self.draws:
            self.draws[purpose] = self.rng(purpose, self.index)
        return randomness.uniform(self.mask, self.draws[purpose])


@dataclass(frozen=True, eq=False)
class BandScores:
    """What a criterion says of all weights of a layer, asked for band by band."""

    criterion: Criterion
    layer: CompactView
    check: Callable[[Criterion, LayerView], Tensor]

    def bands(self, marked: Marks) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores and positions of the marked weights, band after band."""
        for first, view in self.layer.bands():
            scores = self.check(self.criterion, view).reshape(-1)
            places = marked.within(first, len(scores)).nonzero().squeeze(1)
            yield scores[places], places + first


def best(
    scores: Sequence[BandScores], count: int, among: Sequence[Marks], top: Callable[[Tensor, int], Tensor]
) -> list[Marks]:
    """The ``count`` largest scores of several layers together: a running choice, of which no more than a band is in sight at once.

    ``top`` gives the indices of the largest of some values, ties to the lowest index; so ties go to the earlier layer and position.
    """
    starts = [0]
    for marks in among:
        starts.append(starts[-1] + marks.shape.numel())
    kept, places = None, torch.empty(0, dtype=torch.int64)
    for each, marks, start in zip(scores, among, starts, strict=False):
        for values, found in each.bands(marks):
            values = values if kept is None else torch.cat([kept, values])
            found = torch.cat([places, found + start])
            chosen = top(values, min(count, len(values))).sort().values if count else places[:0]
            kept, places = values[chosen], found[chosen]
    cuts = torch.searchsorted(places, torch.tensor(starts)).tolist()
    if cuts[-1] < count:
        raise ValueError(f"cannot select {count} entries out of {cuts[-1]} candidates")
    parts = zip(cuts, cuts[1:], starts, among, strict=False)
    return [Marks(marks.shape, places[begin:end] - start) for begin, end, start, marks in parts]
