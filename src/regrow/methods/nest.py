"""NeST: grow a seed by gradients, then prune what it does not need."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.cycle import Change
from regrow.topology.schedule import Curve, When
from regrow.topology.score import gradient, magnitude, wide
from regrow.topology.select import largest, smallest
from regrow.topology.view import LayerView, Update, needs


def method(
    seed_density: float = 0.1,
    peak: float = 0.3,
    grow_until: float = 0.3,
    prune_until: float = 0.75,
    step: float = 0.1,
) -> Method:
    r"""NeST: a neural network synthesis tool (Dai, Yin & Jha 2017): connection growth, then magnitude pruning.

        growth:   the missing weights of each layer with the largest |dL/dw| come, at  w = -step * dL/dw
        pruning:  the smallest |w| of each layer go, in equal ratios, with training between

    A seed of ``seed_density`` random weights grows to ``peak`` along a line, then shrinks to the density. Layers have their full width:
    a neuron grows when its first weights do.

    Args:
        seed_density: share of the weights in the seed.
        peak: share of the weights at the end of growth.
        grow_until, prune_until: shares of the run at which growth and pruning end.
        step: learning rate of the one step of gradient descent that a grown weight starts with.
    """
    options.within("seed_density", seed_density, 0, 1, open_low=True)
    options.within("peak", peak, seed_density, 1)
    options.ordered("grow_until", grow_until, "prune_until", prune_until)
    options.at_least("step", step, 0)
    return Method(
        name="nest",
        paper="Dai et al.",
        year=2017,
        summary="grow a small random seed by gradients, then prune small weights",
        rewire=needs("gradient")(lambda update: _synthesise(update, step)),
        when=When("epoch"),
        density=lambda target: up_and_down(seed_density, peak, target, grow_until, prune_until),
        budget="schedule",
        sets_values=True,
        neutral={},
        extra_memory="1 dense gradient per layer in update steps",
    )


def up_and_down(seed: float, peak: float, target: float, grow_until: float, prune_until: float) -> Curve:
    """Along a line from the seed to the peak, then in equal ratios down to the target."""
    highest, seed = max(peak, target), seed if target < 1 else 1.0  # density 1 is the dense network

    def density(progress: float) -> float:
        if progress <= grow_until:
            return seed + (highest - seed) * progress / grow_until
        done = min(1.0, (progress - grow_until) / (prune_until - grow_until))
        return highest * (target / highest) ** done if done < 1 else target

    return density


def grown_values(layer: LayerView, count: int, step: float) -> tuple[Tensor, Tensor]:
    """Which missing weights come, and where they start."""
    born = largest(gradient(layer), count, ~layer.mask)
    return born, torch.where(born, -step * wide(layer.gradient), 0.0)


def _synthesise(update: Update, step: float) -> Change:
    masks, removed, grown, weights = [], [], [], []
    for layer, target in zip(update.layers, update.targets or [], strict=True):
        born, start = grown_values(layer, max(0, target - layer.nnz), step)
        gone = smallest(magnitude(layer), max(0, layer.nnz - target), layer.mask)
        masks.append((layer.mask & ~gone) | born)
        removed.append(gone)
        grown.append(born)
        weights.append(torch.where(born, start, wide(layer.weight)) * masks[-1])
    return Change(masks, removed, grown, weights)
