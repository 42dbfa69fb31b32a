"""NeST: grow a seed by gradients, then prune what it does not need."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.methods import options
from regrow.methods.bridge import awaken, narrow, nobody
from regrow.methods.method import Method
from regrow.topology.cycle import Change
from regrow.topology.initial import at_random, ranked
from regrow.topology.schedule import Curve, When, linear
from regrow.topology.score import gradient, magnitude, wide
from regrow.topology.select import largest, smallest
from regrow.topology.view import LayerView, Update, needs

# Growth and pruning go in small steps: the authors remove 1% at a time.
_UPDATES = 60


def method(
    seed_density: float = 0.1,
    peak: float = 0.3,
    grow_until: float = 0.3,
    prune_until: float = 0.75,
    step: float = 0.1,
    width: float = 1.0,
) -> Method:
    r"""NeST: a neural network synthesis tool (Dai, Yin & Jha 2017): neuron and connection growth, then magnitude pruning.

        neurons:      B = -(1/n) H^T dL/da between two linear layers;  for the largest |B_ij|, with e = +-1 drawn,
                      fan-in_i += e sgn(B_ij) sqrt|B_ij|,   fan-out_j += e sqrt|B_ij|,   scaled to their layers' weights
        connections:  the missing weights of each layer with the largest |dL/dw| come, at  w = -step * dL/dw
        pruning:      the smallest |w| of each layer go, in equal ratios, with training between

    A seed of random weights grows to ``peak`` along a line, then shrinks to the density. With ``width`` below 1 (theirs: 0.4) the other
    neurons sleep in the seed and wake along the same line; pass ``calibration=`` then: pairs (inputs, targets), or a function that
    returns them.

    Args:
        seed_density: share of the seed's weights that exist.
        peak: share of the weights at the end of growth.
        grow_until, prune_until: shares of the run at which growth and pruning end.
        step: learning rate of the one step of gradient descent that a grown weight starts with.
        width: share of the neurons between linear layers that are awake in the seed, which is as much smaller.
    """
    options.within("seed_density", seed_density, 0, 1, open_low=True)
    options.within("peak", peak, seed_density, 1)
    options.ordered("grow_until", grow_until, "prune_until", prune_until)
    options.at_least("step", step, 0)
    options.within("width", width, 0, 1, open_low=True)
    awake = linear(width, 1.0, until=grow_until) if width < 1 else None
    return Method(
        name="nest",
        paper="Dai et al.",
        year=2017,
        summary="grow a small random seed by gradients, then prune small weights",
        initial=ranked(lambda setup: narrow(setup, width)) if width < 1 else at_random,
        rewire=needs("gradient")(lambda update: _synthesise(update, step, awake)),
        when=When("epoch", at_least=_UPDATES),
        density=lambda target: up_and_down(seed_density * width, peak, target, grow_until, prune_until),
        calibration="batches" if width < 1 else None,
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


def grown_values(layer: LayerView, count: int, step: float, room: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Which missing weights come, of those in ``room``, and where they start."""
    born = largest(gradient(layer), count, ~layer.mask if room is None else room)
    return born, torch.where(born, -step * wide(layer.gradient), 0.0)


def _synthesise(update: Update, step: float, awake: Curve | None) -> Change:
    masks, removed, grown, weights = [], [], [], []
    woken = nobody(update) if awake is None else awaken(update, awake(update.progress))
    for layer, target, waking in zip(update.layers, update.targets or [], woken, strict=True):
        count = max(0, target - layer.nnz - count_of(waking.born))
        free = ~(layer.mask | waking.born)
        room = free & waking.room
        born, start = grown_values(layer, count, step, room if count_of(room) >= count else free)
        gone = smallest(magnitude(layer), max(0, layer.nnz - target), layer.mask)
        masks.append((layer.mask & ~gone) | born | waking.born)
        removed.append(gone)
        grown.append(born | waking.born)
        value = torch.where(waking.born, waking.start, torch.where(born, start, wide(layer.weight)))
        weights.append(value * masks[-1])
    return Change(masks, removed, grown, weights)
