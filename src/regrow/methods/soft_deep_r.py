"""Soft-DEEP-R: dormant connections keep walking and may come back by themselves."""

from __future__ import annotations

import torch

from regrow import randomness
from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.deep_r import fix_signs, pull_to_zero
from regrow.methods.method import Method, StepView
from regrow.topology import signs
from regrow.topology.cycle import Change, to_masks
from regrow.topology.schedule import When
from regrow.topology.select import largest
from regrow.topology.view import Update
from regrow.weighting import Weighting


def method(l1: float = 1e-5, noise: float = 1e-5) -> Method:
    r"""Soft deep rewiring (Bellec et al. 2018): no fixed number of connections.

    Active connections move as in DEEP-R. Dormant ones walk freely, clipped from below:

        theta_k <- max(theta_min, theta_k + eta * noise * nu_k),   theta_min = -(1 - p0) T / (p0 alpha),   T = eta_0 noise^2 / 2

    and are active again once theta_k > 0. p0 is the density; the number of weights varies around it. First theta of dormant
    connections: uniform in [theta_min, 0].

    Args:
        l1: alpha, strength of the l1 prior.
        noise: scale of the gradient noise.
    """
    options.at_least("noise", noise, 0)
    options.above("l1", l1, 0)  # the walk's lower end is proportional to 1 / l1

    def prepare(layer: StepView) -> None:
        if not layer.lr > 0:
            raise ConfigurationError(
                "soft-deep-r takes its temperature from the learning rate at sparsify, which is 0: set it first"
            )
        fix_signs(layer)
        start = layer.mask.double().mean()
        # theta_min of the learning rate at the start: with that of the moment, a warm-up would let all dormant weights return.
        layer.memory["lowest"] = -(1 - start) * (layer.lr * noise**2 / 2) / (start * l1)
        draw = randomness.uniform(layer.mask, layer.rng("dormant", layer.index)).to(layer.weight.dtype)
        dormant = signs.shown(layer) * draw * float(layer.memory["lowest"])
        layer.weight.copy_(torch.where(layer.mask, layer.weight, dormant))

    def walk(layer: StepView) -> None:
        drawn = randomness.normal(layer.weight, layer.rng("noise", layer.index))
        theta = layer.weight * signs.shown(layer) + drawn * (layer.lr * noise)
        layer.weight.copy_(
            torch.where(layer.mask, theta, theta.clamp_min(float(layer.memory["lowest"]))) * signs.shown(layer)
        )

    return Method(
        name="soft-deep-r",
        paper="Bellec et al.",
        year=2018,
        summary="as DEEP-R, but dormant weights walk at random and return by themselves",
        weighting=Weighting(reach=lambda update: [layer.mask for layer in update.layers]),
        prepare=prepare,
        adjust=pull_to_zero(l1),
        perturb=walk,
        rewire=_positive_theta,
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        budget="free",
        extra_memory="1 dense tensor per layer (theta), 1 byte per weight (signs)",
    )


def _positive_theta(update: Update) -> Change:
    masks = []
    for layer in update.layers:
        theta = layer.weight * signs.shown(layer)
        active = theta > 0
        masks.append(active if bool(active.any()) else largest(theta.float(), 1, torch.ones_like(active)))
    return to_masks(update, masks)
