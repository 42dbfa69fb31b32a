"""Scores: one number per weight. Pruning removes the smallest, growth takes the largest."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regrow.errors import ConfigurationError, NonFiniteError
from regrow.topology.view import LayerView, needs

Score = Callable[[LayerView], Tensor]


def scores_of(criterion: Score, layer: LayerView) -> Tensor:
    """What a criterion says of a layer, checked: one finite number per weight."""
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


def all_finite(tensor: Tensor) -> bool:
    """Whether no entry is NaN or infinite. A finite sum says so in a tenth of the time; one that is not may have overflowed."""
    return bool(tensor.sum().isfinite()) or bool(torch.isfinite(tensor).all())


def wide(tensor: Tensor) -> Tensor:
    """At least float32; float64 stays as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def magnitude(layer: LayerView) -> Tensor:
    """|w|."""
    return wide(layer.weight.abs())


@needs("momentum")
def momentum(layer: LayerView) -> Tensor:
    """|M|: magnitude of the exponentially smoothed gradient."""
    return wide(layer.momentum.abs()) * layer.momentum_scale


@needs("gradient")
def gradient(layer: LayerView) -> Tensor:
    """|g|: magnitude of the current batch's gradient."""
    return wide(layer.gradient.abs())


def random(layer: LayerView) -> Tensor:
    """Uniform random: a choice without replacement."""
    return layer.random("grow")


def magnitude_and_gradient(weight: float) -> Score:
    """|w| + weight * |g| (MEST)."""

    @needs("gradient")
    def score(layer: LayerView) -> Tensor:
        return magnitude(layer) + weight * gradient(layer)

    return magnitude if weight == 0 else score


@needs("present momentum")
def magnitude_by_curvature(layer: LayerView) -> Tensor:
    """|w| / sum|w| * (1/sqrt v) / sum(1/sqrt v): an Adam-based pruning score."""
    inverse = layer.second_moment.float().sqrt().add(1e-8).reciprocal()
    weight = magnitude(layer)
    return weight / weight.sum().clamp_min(1e-30) * (inverse / inverse[layer.mask].sum())
