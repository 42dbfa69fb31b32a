"""Bayesian compression: noise on whole units; a unit that drowns in it goes with all its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.method import Method
from regrow.methods.units import read_units
from regrow.methods.variational_dropout import divergence
from regrow.topology.initial import Setup, everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.view import LayerView
from regrow.weighting import Product, Side, Trained, Weighting, units_of

_EPSILON = 1e-8
_FIRST_LIMIT = math.log(0.04)


def method(
    strength: float = 1.0,
    threshold: float | Sequence[float] = -3.0,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Bayesian compression with group normal-Jeffreys priors (Louizos, Ullrich & Welling 2017).

    weight = z_i v_ij, q(z_i) = N(mu_z, s_z^2) per input feature (linear) or filter (convolution), q(v_ij) = N(theta_ij, s_ij^2):

        linear: z drawn per sample, out = (x z) theta + b + sqrt((x z)^2 s^2) eps;   convolution: out = z (x theta + sqrt(x^2 s^2) eps) + b
        loss + 1/N ( sum_i KL(log_alpha_i) + sum_ij 0.5 (exp(lv) - lv + theta^2 - 1) ),   log_alpha_i = lv_z - log mu_z^2, lv = log s^2
        evaluation: w = mu_z theta, units with log_alpha_i < threshold; a unit whose outputs nobody reads goes too

    KL is that of variational dropout. In the first layer lv stays below log 0.04. Use Adam.

    Args:
        strength: factor on the penalty; 1 is the variational bound.
        threshold: of log_alpha, one number or one per layer; read it off the gap in the histogram. Theirs: -2.8, -3, -5.
        budget, finetune_steps: ``exact`` cuts to the budget by log_alpha so many steps before the end, and trains on with fixed masks.
    """
    options.at_least("strength", strength, 0)

    def first(setup: Setup) -> list[Tensor]:
        if not isinstance(threshold, (int, float)) and len(threshold) != len(setup.layers):
            raise ConfigurationError(
                f"threshold has {len(threshold)} values for {len(setup.layers)} sparse layers: give one for each"
            )
        return everything(setup)

    def penalty(layers: Sequence[Trained]) -> Tensor:
        return strength / layers[0].samples * torch.stack([group_divergence(layer) for layer in layers]).sum()

    def margin(layer: LayerView) -> Tensor:
        limit = threshold if isinstance(threshold, (int, float)) else threshold[layer.index]
        found = log_alpha_of(layer.side["z_mean"].detach(), layer.side["z_logvar"].detach())
        return (limit - found).expand(layer.mask.shape)

    outcome = Outcome(margin, finetune_steps=options.finetune(budget, finetune_steps))
    return Method(
        name="bayesian-compression",
        paper="Louizos et al.",
        year=2017,
        summary="learn the noise of whole units; those that drown in it go with all their weights",
        initial=first,
        weighting=Weighting(
            side=_posterior,
            show=lambda layer: layer.theta * layer.side["z_mean"],
            product=product,
            penalty=penalty,
            settle=_clamp,
            decays=False,
            samples=True,
        ),
        outcome=outcome,
        rewire=lambda update: read_units(update, outcome.rewire(update)),
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        budget="outcome",
        extra_memory="2 dense tensors per layer (theta, log variance), 2 numbers per unit, and optimizer state",
    )


def log_alpha_of(mean: Tensor, logvar: Tensor) -> Tensor:
    """The logarithm of noise over signal of each unit."""
    return logvar - (mean.square() + _EPSILON).log()


def normal_divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """KL of N(mean, exp(logvar)) to N(0, 1), per weight."""
    return 0.5 * (logvar.exp() - logvar + mean.square() - 1)


def group_divergence(layer: Trained) -> Tensor:
    """The penalty of one layer."""
    units = divergence(log_alpha_of(layer.side["z_mean"], layer.side["z_logvar"])).sum()
    return units + normal_divergence(layer.theta, layer.side["logvar"]).sum()


def product(call: Product) -> Tensor:
    """Noise on units and outputs."""
    layer, kind = call.trained, call.x.dtype
    mean, std = layer.side["z_mean"].to(kind), (0.5 * layer.side["z_logvar"]).exp().to(kind)
    theta, variance = layer.theta.to(kind), layer.side["logvar"].exp().to(kind)
    if isinstance(layer.layer.module, nn.Linear):
        x = call.x * (mean.flatten() + std.flatten() * call.normal(call.x))
        out = call.multiply(x, theta, call.bias)
        return out + (call.multiply(x.square(), variance, None) + _EPSILON).sqrt() * call.normal(out)
    out = call.multiply(call.x, theta, None)
    spread = (call.multiply(call.x.square(), variance, None).clamp_min(0) + _EPSILON).sqrt() * call.normal(out)
    z = mean.view(1, -1, 1, 1) + std.view(1, -1, 1, 1) * call.normal(out[:, :, :1, :1])
    return z * (out + spread) + (0 if call.bias is None else call.bias.view(1, -1, 1, 1))


def _posterior(layer: Trained) -> dict[str, Side]:
    kind = torch.promote_types(layer.theta.dtype, torch.float32)

    def near(value: float, shape: Sequence[int], name: str) -> Side:
        like = torch.empty(tuple(shape), dtype=kind, device=layer.theta.device)
        return Side(value + 0.01 * randomness.normal(like, layer.rng(name, layer.index)))

    units = units_of(layer.layer)
    means = {"z_mean": near(1.0, units, "z_mean"), "z_logvar": near(-9.0, units, "z_logvar")}
    return {**means, "logvar": near(-9.0, layer.theta.shape, "logvar")}


def _clamp(layer: Trained) -> None:
    if layer.index == 0:
        layer.side["logvar"].clamp_(max=_FIRST_LIMIT)
