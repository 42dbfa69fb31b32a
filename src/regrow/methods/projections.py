"""Compression steps: the sparse vector nearest to a given one, under a constraint or a penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regrow.topology.score import wide
from regrow.topology.select import largest, largest_overall
from regrow.topology.view import LayerView


def keep_largest(values: Sequence[Tensor], count: int) -> list[Tensor]:
    """||theta||_0 <= count over all tensors together; at least one entry of each stays."""
    sizes = [value.abs() for value in values]
    every = [torch.ones_like(size, dtype=torch.bool) for size in sizes]
    firsts = [largest(size, 1, among) for size, among in zip(sizes, every, strict=True)]
    rest = largest_overall(sizes, count - len(firsts), [~first for first in firsts])
    return [v * (first | more) for v, first, more in zip(values, firsts, rest, strict=True)]


def l0_penalty(value: Tensor, alpha: float, mu: float) -> Tensor:
    """min alpha ||theta||_0 + mu/2 ||theta - v||^2: entries beyond sqrt(2 alpha/mu) stay."""
    return value * (value.abs() > math.sqrt(2 * alpha / mu))


def l1_penalty(value: Tensor, alpha: float, mu: float) -> Tensor:
    """min alpha ||theta||_1 + mu/2 ||theta - v||^2: soft threshold alpha/mu."""
    return value.sign() * (value.abs() - alpha / mu).clamp_min(0)


def l1_ball(value: Tensor, radius: float) -> Tensor:
    """The nearest point with ||theta||_1 <= radius.

    Example:
        >>> [round(v, 6) for v in l1_ball(torch.tensor([0.7, 0.1, 0.2, 0.05, 0.3]), 0.9).tolist()]
        [0.6, 0.0, 0.1, 0.0, 0.2]
    """
    size = value.abs().flatten()
    if float(size.sum()) <= radius:
        return value
    ordered = size.sort(descending=True).values
    steps = torch.arange(1, len(ordered) + 1, device=value.device)
    excess = (ordered.cumsum(0) - radius) / steps
    threshold = excess[int((ordered > excess).sum()) - 1]
    return value.sign() * (value.abs() - threshold).clamp_min(0)


def advance(
    layers: Sequence[LayerView], mu: float, multipliers: bool, project: Callable[[list[Tensor]], list[Tensor]]
) -> None:
    """One C step: theta and lambda in the layers' memory, ``kept`` and ``multiplier``."""
    old = [layer.memory.get("multiplier", torch.zeros_like(wide(layer.weight))) for layer in layers]
    kept = project([wide(layer.weight) - one / mu for layer, one in zip(layers, old, strict=True)])
    for layer, theta, one in zip(layers, kept, old, strict=True):
        layer.memory["kept"] = theta
        layer.memory["multiplier"] = one - mu * (wide(layer.weight) - theta) if multipliers else torch.zeros_like(one)


def support(kept: Tensor) -> Tensor:
    """Where a compressed layer is not zero; its first entry where it is."""
    mask = kept != 0
    return mask if bool(mask.any()) else largest(kept.abs(), 1, torch.ones_like(mask))
