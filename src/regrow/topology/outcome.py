"""Masks that follow from what is learnt: their density is an outcome, unless it is cut to a budget at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology.cycle import Change, to_masks
from regrow.topology.schedule import Curve, constant
from regrow.topology.score import Score, scores_of
from regrow.topology.select import largest, largest_overall
from regrow.topology.view import LayerView, Update

_ZERO = constant(0.0)


@dataclass(frozen=True)
class Outcome:
    """A score and its natural threshold: weights that score above it are present.

    In every layer at least one stays, and more than the share ``least``.

    ``remedy`` says how else to get a budget, where the method has no ``budget="exact"``.

    ``together``, where layers depend on each other, makes of all layers' scores those that count.

    With ``finetune_steps`` the run is cut to its budget by the score so many steps before its end, and goes on with fixed masks.
    """

    score: Score
    threshold: Curve = _ZERO
    least: float = 0.0
    finetune_steps: int | None = None
    together: Callable[[Sequence[LayerView], list[Tensor]], list[Tensor]] | None = None
    remedy: str = ""

    @property
    def exact(self) -> bool:
        """Whether the run ends with a budget."""
        return self.finetune_steps is not None

    def cuts_at(self, steps: int | None) -> int | None:
        """After how many steps of the run the cut comes."""
        return None if self.finetune_steps is None or steps is None else steps - self.finetune_steps

    def rewire(self, update: Update) -> Change:
        """The weights that score above the threshold now."""
        masks, border = [], self.threshold(update.progress)
        for layer, scores in zip(update.layers, self._scores(update), strict=True):
            above = scores > border
            least = math.floor(self.least * layer.numel) + 1
            masks.append(above if count_of(above) >= least else largest(scores, least, torch.ones_like(above)))
        return to_masks(update, masks)

    def cut(self, update: Update) -> Change:
        """The best ``sum(update.targets)`` weights of the whole network, at least one in every layer."""
        scores = self._scores(update)
        every = [torch.ones_like(layer.mask) for layer in update.layers]
        firsts = [largest(score, 1, among) for score, among in zip(scores, every, strict=True)]
        rest = largest_overall(scores, sum(update.targets or []) - len(firsts), [~first for first in firsts])
        return to_masks(update, [first | more for first, more in zip(firsts, rest, strict=True)])

    def _scores(self, update: Update) -> list[Tensor]:
        scores = [scores_of(self.score, layer) for layer in update.layers]
        return scores if self.together is None else self.together(update.layers, scores)
