"""Scores: one number per weight. Pruning removes the smallest, growth takes the largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from regrow.errors import ConfigurationError, NonFiniteError
from regrow.topology.bands import BandScores, CompactView
from regrow.topology.view import LayerView, needs

Score = Callable[[LayerView], Tensor]
F = TypeVar("F", bound=Callable)


def per_weight(criterion: F) -> F:
    """Mark a criterion that looks at each weight by itself, so that it may be asked about any selection of a layer's weights.

    Of a layer in compact storage it is then given vectors of the present weights, where others see bands of rows.
    """
    criterion.per_weight = True  # type: ignore[attr-defined]
    return criterion


def is_per_weight(criterion: object) -> bool:
    """What :func:`per_weight` declared."""
    return getattr(criterion, "per_weight", False)


def by_bands(rewire: F) -> F:
    """Mark a method's own rewiring that looks at layers in compact storage as they are: present weights as vectors, the rest in bands."""
    rewire.by_bands = True  # type: ignore[attr-defined]
    return rewire


def scores_of(criterion: Score, layer: LayerView) -> Tensor:
    """What a criterion says of a layer, checked: one finite number per weight; per present weight in compact storage."""
    if isinstance(layer, CompactView) and not is_per_weight(criterion):
        marks, places = layer.marks(torch.ones_like(layer.mask)), BandScores(criterion, layer, scores_of)
        return torch.cat([values for values, _ in places.bands(marks)])
    scores = criterion(layer)
    name = getattr(criterion, "__name__", "a criterion")
    if not isinstance(scores, Tensor) or scores.shape != layer.mask.shape:
        given = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ConfigurationError(
            f"{name} gave {given} for layer {layer.name}: a score is a tensor of shape {tuple(layer.mask.shape)}"
        )
    if not all_finite(scores):
        raise NonFiniteError(
            f"{name} gave a score that is not finite in layer {layer.name}: masks were left as they are"
        )
    return scores


def scores_anywhere(criterion: Score, layer: LayerView) -> Tensor | BandScores:
    """What a criterion says of all weights of a layer, also of missing ones."""
    return BandScores(criterion, layer, scores_of) if isinstance(layer, CompactView) else scores_of(criterion, layer)


def all_finite(tensor: Tensor) -> bool:
    """Whether no entry is NaN or infinite. A finite sum says so in a tenth of the time; one that is not may have overflowed."""
    return bool(tensor.sum().isfinite()) or bool(torch.isfinite(tensor).all())


def wide(tensor: Tensor) -> Tensor:
    """At least float32; float64 stays as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


@per_weight
def magnitude(layer: LayerView) -> Tensor:
    """|w|."""
    return wide(layer.weight.abs())


@per_weight
@needs("momentum")
def momentum(layer: LayerView) -> Tensor:
    """|M|: magnitude of the exponentially smoothed gradient."""
    return wide(layer.momentum.abs()) * layer.momentum_scale


@per_weight
@needs("gradient")
def gradient(layer: LayerView) -> Tensor:
    """|g|: magnitude of the current batch's gradient."""
    return wide(layer.gradient.abs())


def random(layer: LayerView) -> Tensor:
    """Uniform random: a choice without replacement."""
    return layer.random("grow")


def magnitude_and_gradient(weight: float) -> Score:
    """|w| + weight * |g| (MEST)."""

    @per_weight
    @needs("gradient")
    def score(layer: LayerView) -> Tensor:
        return magnitude(layer) + weight * gradient(layer)

    return magnitude if weight == 0 else score


@per_weight
@needs("present momentum")
def magnitude_by_curvature(layer: LayerView) -> Tensor:
    """|w| / sum|w| * (1/sqrt v) / sum(1/sqrt v): an Adam-based pruning score."""
    inverse = layer.second_moment.float().sqrt().add(1e-8).reciprocal()
    weight = magnitude(layer)
    return weight / weight.sum().clamp_min(1e-30) * (inverse / inverse[layer.mask].sum())
