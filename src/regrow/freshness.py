"""Do weights look as if they had been trained? Asked once, before masks drawn at random would set most of them to zero.

Fresh weights of a layer are independent draws from one distribution, or orthogonal: no direction stands out. Training moves them along
few directions, so that the largest singular value s leaves the range that n x m independent draws of variance v have (Johnstone 2001):

    (s^2 / v - mu) / tau <= 10,   mu = (sqrt(n-1) + sqrt(m))^2,   tau = (sqrt(n-1) + sqrt(m)) (1/sqrt(n-1) + 1/sqrt(m))^(1/3)

Besides, norms start constant, optimizers without state, and weights without zeros. None of this sees training of a few steps, or weights
that were given other values by hand; it takes hand-made filters in most layers for trained ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regrow import randomness
from regrow.scope import Layer

_SMALLEST = 8
"""Rows and columns that a layer needs for its singular values to say anything."""
_LIMIT = 10.0
"""Where independent draws do not come: their excess (Tracy-Widom distributed) lies there once in 10^9."""
_POWERS = 10
_SHARE = 0.25
"""Share of the weights in layers that were looked at that must stand out."""
_BATCHES = 10
"""Batches that batch norm may have counted in a model that was only tried out."""
_ZEROS = 0.05
"""Share of zeros, in rows that have other weights too, above which weights are sparse already."""
_NORMS = (nn.LayerNorm, nn.GroupNorm)


def signs_of_training(model: nn.Module, optimizer: Optimizer, layers: Sequence[Layer]) -> str | None:
    """What tells that the weights are not fresh, in a few words; None where nothing does.

    Example:
        >>> from regrow.scope import choose
        >>> net = nn.Linear(64, 64)
        >>> signs_of_training(net, torch.optim.SGD(net.parameters(), lr=0.1), choose(net)[0]) is None
        True
    """
    if any(_stepped(optimizer.state.get(layer.parameter, {})) for layer in layers):
        return "the optimizer has stepped them before"
    if zeros := _scattered_zeros(layers):
        return f"{zeros:.0%} of them are zero"
    if batches := _batches_seen(model):
        return f"batch norm has counted {batches:,} batches"
    if _norms_moved(model):
        return "norms have biases that differ"
    if _outstanding(layers) >= _SHARE:
        return "they have directions that fresh ones do not have"
    return None


def _stepped(state: dict[str, Any]) -> bool:
    """Whether an optimizer's state of a parameter comes from a step; some have one from the beginning, at step 0."""
    return float(state["step"]) > 0 if "step" in state else any(value is not None for value in state.values())


def _matrices(layers: Sequence[Layer]) -> Iterator[Tensor]:
    for layer in layers:
        weight = layer.band(layer.parameter.detach()).movedim(layer.output_dim, 0).flatten(1)
        if weight.ndim == 2 and min(weight.shape) >= _SMALLEST:
            yield weight.float()


def _scattered_zeros(layers: Sequence[Layer]) -> float:
    """Share of zeros; 0 where they are those of an initialisation: whole rows, or all but one of a row (identity, Dirac)."""
    zeros = total = 0
    for weight in _matrices(layers):
        present = (weight != 0).sum(1)
        scattered = (present > 1) & (present < weight.shape[1])
        zeros += int((weight.shape[1] - present)[scattered].sum())
        total += weight.numel()
    share = zeros / total if total else 0.0
    return share if share > _ZEROS else 0.0


def _batches_seen(model: nn.Module) -> int:
    counted = [m.num_batches_tracked for m in model.modules() if getattr(m, "num_batches_tracked", None) is not None]
    most = max((int(count) for count in counted if isinstance(count, Tensor)), default=0)
    return most if most >= _BATCHES else 0


def _norms_moved(model: nn.Module) -> bool:
    """Whether most layer and group norms have biases that differ between channels: all known initialisations make them equal.

    Batch norm is not asked: some (RepVGG) draw its biases at random.
    """
    norms = [m for m in model.modules() if isinstance(m, _NORMS)]
    biases = [m.bias.detach().flatten() for m in norms if isinstance(m.bias, Tensor)]
    moved = sum(not torch.equal(bias, bias[0].expand_as(bias)) for bias in biases)
    return 2 * moved > len(biases)


def _outstanding(layers: Sequence[Layer]) -> float:
    """Share of the weights that lie in layers with a direction that stands out."""
    odd = total = 0
    for weight in _matrices(layers):
        total += weight.numel()
        odd += weight.numel() * (excess(weight) > _LIMIT)
    return odd / total if total else 0.0


def excess(weight: Tensor) -> float:
    """How far the largest singular value of a centred matrix lies above the range of independent draws; 0 for constants.

    Example:
        >>> excess(torch.ones(10, 10))
        0.0
        >>> excess(torch.randn(30, 30) + torch.arange(30.0)) > 10
        True
    """
    if not bool((weight != weight[0, 0]).any()):
        return 0.0
    centred = weight - weight.mean()
    variance = float(centred.square().mean())
    if not (math.isfinite(variance) and variance > 0):
        return 0.0
    direction = torch.randn(weight.shape[1], generator=randomness.generator(0, "direction")).to(weight)
    for _ in range(_POWERS):  # from below: an estimate that is not yet exact raises no false alarm
        direction = torch.nn.functional.normalize(centred.T @ (centred @ direction), dim=0)
    largest = float((centred @ direction).square().sum()) / variance
    n, m = math.sqrt(weight.shape[0] - 1), math.sqrt(weight.shape[1])
    return (largest - (n + m) ** 2) / ((n + m) * (1 / n + 1 / m) ** (1 / 3))
