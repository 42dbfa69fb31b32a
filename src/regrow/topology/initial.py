"""Which weights exist at first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regrow.scope import Layer
from regrow.topology.score import magnitude
from regrow.topology.select import largest, largest_overall
from regrow.topology.view import LayerView


@dataclass(frozen=True)
class Setup:
    """What is known before training: the layers (all weights present), the budget, the model."""

    layers: list[LayerView]
    counts: list[int]
    sparse: list[Layer]
    seed: int
    model: nn.Module
    calibration: Any
    average: Callable[[Tensor], Tensor]
    rank: Callable[[LayerView], Tensor] = lambda layer: layer.random("initial")

    @property
    def total(self) -> int:
        """The budget of the whole network."""
        return sum(self.counts)


Initial = Callable[[Setup], list[Tensor]]


def ranked(initial: Initial) -> Initial:
    """Mark a rule that asks ``setup.rank`` which positions come first: draws at random, or what the user's ``start`` says."""
    initial.ranked = True  # type: ignore[attr-defined]
    return initial


def follows_rank(initial: Initial) -> bool:
    """Whether a rule takes positions in the order of ``setup.rank``."""
    return getattr(initial, "ranked", False)


@ranked
def at_random(setup: Setup) -> list[Tensor]:
    """Exactly ``counts[i]`` positions of each layer: uniformly without replacement, unless a ``start`` ranks them otherwise."""
    return [largest(setup.rank(v), n, v.mask) for v, n in zip(setup.layers, setup.counts, strict=True)]


def everything(setup: Setup) -> list[Tensor]:
    """All weights: dense-to-sparse methods start here."""
    return [torch.ones_like(layer.mask) for layer in setup.layers]


def by_magnitude(setup: Setup) -> list[Tensor]:
    """The ``counts[i]`` largest |w| of each layer."""
    return [largest(magnitude(v), n, v.mask) for v, n in zip(setup.layers, setup.counts, strict=True)]


def globally_largest(setup: Setup, scores: list[Tensor], total: int) -> list[Tensor]:
    """The ``total`` largest scores of the whole network; every layer keeps at least its own best one."""
    firsts = [largest(s, 1, torch.ones_like(v.mask)) for v, s in zip(setup.layers, scores, strict=True)]
    rest = largest_overall(scores, total - len(firsts), [~f for f in firsts])
    return [f | r for f, r in zip(firsts, rest, strict=True)]
