"""Noisy scales of units: what is learnt of them, and what their prior asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.methods.variational_dropout import divergence
from regrow.weighting import Product, Side, Trained, units_of

_EPSILON = 1e-8
Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class Scale:
    """The scale z of each unit of a layer, a function of a Gaussian whose mean and deviation follow from side parameters.

    ``of`` makes z of the Gaussian; ``mean`` is that of z; ``divergence`` is KL to the prior, summed; ``noise`` is large where a unit
    may go.
    """

    first: Callable[[Trained], dict[str, Side]]
    gauss: Callable[[Values], tuple[Tensor, Tensor]]
    of: Callable[[Tensor], Tensor]
    mean: Callable[[Values], Tensor]
    divergence: Callable[[Values], Tensor]
    noise: Callable[[Values], Tensor]


def near(layer: Trained, value: float, shape: Sequence[int], name: str) -> Side:
    """A side parameter drawn from N(value, 0.01)."""
    kind = torch.promote_types(layer.theta.dtype, torch.float32)
    like = torch.empty(tuple(shape), dtype=kind, device=layer.theta.device)
    return Side(value + 0.01 * randomness.normal(like, layer.rng(name, layer.index)))


def log_alpha_of(mean: Tensor, logvar: Tensor) -> Tensor:
    """The logarithm of noise over signal of each unit."""
    return logvar - (mean.square() + _EPSILON).log()


def _noise_over_signal(side: Values) -> Tensor:
    return log_alpha_of(side["z_mean"], side["z_logvar"])


JEFFREYS = Scale(
    first=lambda layer: {
        "z_mean": near(layer, 1.0, units_of(layer.layer), "z_mean"),
        "z_logvar": near(layer, -9.0, units_of(layer.layer), "z_logvar"),
    },
    gauss=lambda side: (side["z_mean"], (0.5 * side["z_logvar"]).exp()),
    of=lambda gauss: gauss,
    mean=lambda side: side["z_mean"],
    divergence=lambda side: divergence(_noise_over_signal(side)).sum(),
    noise=_noise_over_signal,
)
"""Normal-Jeffreys: z is normal, its prior 1/|z|."""


def normal_divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """KL of N(mean, exp(logvar)) to N(0, 1), per weight."""
    return 0.5 * (logvar.exp() - logvar + mean.square() - 1)


def group_divergence(layer: Trained, scale: Scale) -> Tensor:
    """The penalty of one layer."""
    return scale.divergence(layer.side) + normal_divergence(layer.theta, layer.side["logvar"]).sum()


def product(call: Product, scale: Scale) -> Tensor:
    """Noise on units and outputs."""
    layer, kind = call.trained, call.x.dtype
    mean, std = (part.to(kind).flatten() for part in scale.gauss(layer.side))
    theta, variance = layer.theta.to(kind), layer.side["logvar"].exp().to(kind)
    if isinstance(layer.layer.module, nn.Linear):
        x = call.x * scale.of(mean + std * call.normal(call.x))
        out = call.multiply(x, theta, call.bias)
        return out + (call.multiply(x.square(), variance, None) + _EPSILON).sqrt() * call.normal(out)
    out = call.multiply(call.x, theta, None)
    spread = (call.multiply(call.x.square(), variance, None).clamp_min(0) + _EPSILON).sqrt() * call.normal(out)
    z = scale.of(mean.view(1, -1, 1, 1) + std.view(1, -1, 1, 1) * call.normal(out[:, :, :1, :1]))
    return z * (out + spread) + (0 if call.bias is None else call.bias.view(1, -1, 1, 1))
