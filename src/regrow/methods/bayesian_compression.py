"""Bayesian compression: noise on whole units; a unit that drowns in it goes with all its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.horseshoe import HORSESHOE
from regrow.methods.method import Method
from regrow.methods.scales import JEFFREYS, Scale, group_divergence, near, product
from regrow.methods.units import as_read
from regrow.topology.initial import Setup, everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.view import LayerView
from regrow.weighting import Side, Trained, Weighting

_FIRST_LIMIT = math.log(0.04)
_SCALES = {"jeffreys": JEFFREYS, "horseshoe": HORSESHOE}
_THRESHOLDS = {"jeffreys": -3.0, "horseshoe": 3.0}


def method(
    strength: float = 1.0,
    prior: Literal["jeffreys", "horseshoe"] = "jeffreys",
    threshold: float | Sequence[float] | None = None,
    noise_lr: float | None = None,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Bayesian compression with priors on groups (Louizos, Ullrich & Welling 2017).

    weight = z_i v_ij, z_i per input feature (linear) or filter (convolution), q(v_ij) = N(theta_ij, s_ij^2):

        linear: z drawn per sample, out = (x z) theta + b + sqrt((x z)^2 s^2) eps;   convolution: out = z (x theta + sqrt(x^2 s^2) eps) + b
        loss + 1/N ( sum_i KL(z_i) + sum_ij 0.5 (exp(lv) - lv + theta^2 - 1) ),   lv = log s^2
        evaluation: w = E[z] theta, units with noise_i < threshold; a unit whose outputs nobody reads goes too

    ``jeffreys``: q(z_i) = N(mu_z, s_z^2), KL that of variational dropout, noise_i = log s_z^2 - log mu_z^2.
    ``horseshoe``: z_i = sqrt(s_a s_b a_i b_i), all log-normal, s_a and s_b common to a layer, noise_i = -log of the mode of z_i.
    In the first layer lv stays below log 0.04. Use Adam.

    Args:
        strength: factor on the penalty; 1 is the variational bound.
        prior: ``jeffreys`` or ``horseshoe``.
        threshold: of the noise, one number or one per layer; read it off the gap in the histogram. Default: -3, and 3 with a horseshoe.
            Theirs: -2.8, -3, -5 (jeffreys).
        noise_lr: learning rate of z and of all variances, which follows the weights' schedule; None is the weights' own.
        budget, finetune_steps: ``exact`` cuts to the budget by the noise so many steps before the end, and trains on with fixed masks.
    """
    options.at_least("strength", strength, 0)
    options.one_of("prior", prior, _SCALES)
    options.rate("noise_lr", noise_lr)
    scale, limits = _SCALES[prior], _THRESHOLDS[prior] if threshold is None else threshold

    def first(setup: Setup) -> list[Tensor]:
        if not isinstance(limits, (int, float)) and len(limits) != len(setup.layers):
            raise ConfigurationError(
                f"threshold has {len(limits)} values for {len(setup.layers)} sparse layers: give one for each"
            )
        return everything(setup)

    def penalty(layers: Sequence[Trained]) -> Tensor:
        return strength / layers[0].samples * torch.stack([group_divergence(layer, scale) for layer in layers]).sum()

    def margin(layer: LayerView) -> Tensor:
        limit = limits if isinstance(limits, (int, float)) else limits[layer.index]
        found = scale.noise({name: value.detach() for name, value in layer.side.items()})
        return (limit - found).expand(layer.mask.shape)

    outcome = Outcome(margin, finetune_steps=options.finetune(budget, finetune_steps), together=as_read)
    return Method(
        name="bayesian-compression",
        paper="Louizos et al.",
        year=2017,
        summary="learn the noise of whole units; those that drown in it go with all their weights",
        initial=first,
        weighting=Weighting(
            side=lambda layer: _posterior(layer, scale, noise_lr),
            show=lambda layer: layer.theta * scale.mean(layer.side),
            product=lambda call: product(call, scale),
            penalty=penalty,
            settle=_clamp,
            decays=False,
            samples=True,
        ),
        outcome=outcome,
        rewire=outcome.rewire,
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        budget="outcome",
        extra_memory="2 dense tensors per layer (theta, log variance), 2 to 4 numbers per unit, and optimizer state",
    )


def _posterior(layer: Trained, scale: Scale, lr: float | None) -> dict[str, Side]:
    found = {**scale.first(layer), "logvar": near(layer, -9.0, layer.theta.shape, "logvar")}
    return {name: replace(side, lr=lr) for name, side in found.items()}


def _clamp(layer: Trained) -> None:
    if layer.index == 0:
        layer.side["logvar"].clamp_(max=_FIRST_LIMIT)
