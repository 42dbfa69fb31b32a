"""Neurons that wake between two linear layers: fan-in and fan-out from the bridging gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.calibration import bridging_gradients
from regrow.methods.units import junctions
from regrow.topology.initial import Setup
from regrow.topology.score import wide
from regrow.topology.select import largest
from regrow.topology.view import LayerView, Update

_SHARE = 0.1  # of |B| that a new neuron is made of
_STRENGTH = 0.5  # of its weights, relative to the mean |w| of their layer; the authors ask for more than 0.3


def narrow(setup: Setup, width: float) -> list[Tensor]:
    """First masks drawn in the first ``width`` of the neurons between linear layers; the others sleep, as far as the budget has room."""
    allowed = [torch.ones_like(layer.mask) for layer in setup.layers]
    for below in junctions(setup.layers):
        awake = max(1, round(width * len(allowed[below])))
        allowed[below][awake:] = False
        allowed[below + 1][:, awake:] = False
    masks = []
    for layer, count, among in zip(setup.layers, setup.counts, allowed, strict=True):
        fits = int(among.sum()) >= count
        masks.append(largest(setup.rank(layer), count, among if fits else torch.ones_like(among)))
    return masks


def neuron(gradient: Tensor, share: float, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Fan-in and fan-out of one neuron: psi_i = sum_j e sgn(B_ij) sqrt|B_ij|, omega_j = sum_i e sqrt|B_ij|, over the largest |B|."""
    size = gradient.abs()
    chosen = largest(size, max(1, round(share * size.numel())), torch.ones_like(size, dtype=torch.bool))
    roots = size.sqrt() * signs * chosen
    return (roots * gradient.sign()).sum(1), roots.sum(0)


@dataclass(eq=False)
class Waking:
    """What neurons that wake bring to a layer: which weights, where they start, and where connections may grow beside them."""

    born: Tensor
    start: Tensor
    room: Tensor


def nobody(update: Update) -> list[Waking]:
    """No neuron wakes, and none sleeps: connections may grow wherever they are missing."""
    layers = update.layers
    return [Waking(torch.zeros_like(v.mask), torch.zeros_like(wide(v.weight)), ~v.mask) for v in layers]


def awaken(update: Update, width: float) -> list[Waking]:
    """Wake neurons until the share ``width`` of them is awake, on each side for at most a third of the weights that a layer may grow.

    Connections of those that sleep on do not grow.
    """
    woken, layers = nobody(update), update.layers
    rooms = [max(0, t - v.nnz) // 3 for v, t in zip(layers, update.targets or [], strict=True)]
    places = junctions(layers)
    pairs = {below: found for below in places if len(found := _due(layers, below, width))}
    if pairs:
        source = update.source
        sparse = [(source.layers[layers[p].index], source.layers[layers[p + 1].index]) for p in pairs]
        gradients = bridging_gradients(source.model, sparse, source.calibration, source.average)
        for (below, found), gradient in zip(pairs.items(), gradients, strict=True):
            inside, outside = rooms[below] // len(found), rooms[below + 1] // len(found)
            for unit in found if min(inside, outside) else []:
                signs = torch.randint(0, 2, gradient.shape, generator=update.rng("bridge", below, unit)) * 2.0 - 1
                psi, omega = neuron(gradient, _SHARE, signs.to(gradient))
                first, second = woken[below], woken[below + 1]
                first.born[unit], first.start[unit] = _fan(psi, inside, layers[below])
                second.born[:, unit], second.start[:, unit] = _fan(omega, outside, layers[below + 1])
    for below in places:
        asleep = _asleep(layers, below) & ~woken[below].born.any(1)
        woken[below].room &= ~asleep[:, None]
        woken[below + 1].room &= ~asleep
    return woken


def _asleep(layers: list[LayerView], below: int) -> Tensor:
    return ~(layers[below].mask.any(1) | layers[below + 1].mask.any(0))


def _due(layers: list[LayerView], below: int, width: float) -> list[int]:
    """The neurons without any weight that have to wake now."""
    asleep = _asleep(layers, below)
    wanted = int(asleep.sum()) - round((1 - width) * len(asleep))
    return asleep.nonzero().flatten().tolist()[: max(0, wanted)]


def _fan(values: Tensor, count: int, layer: LayerView) -> tuple[Tensor, Tensor]:
    """The largest weights of a fan, scaled to their layer's."""
    born = largest(values.abs(), min(count, int((values != 0).sum())), torch.ones_like(values, dtype=torch.bool))
    present = wide(layer.weight)[layer.mask].abs()
    size = float(present.mean()) if present.numel() else 1.0
    kept = values * born
    scale = _STRENGTH * size / max(float(kept.abs().sum() / max(1, int(born.sum()))), 1e-30)
    return born, (kept * scale).to(wide(layer.weight).dtype)
