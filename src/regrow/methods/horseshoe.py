"""The horseshoe: z_i = sqrt(s_a s_b a_i b_i), all four log-normal, most scales near zero and a few far from it.

Priors of s_a and a_i are Gamma(1/2), those of s_b and b_i inverse Gamma(1/2, 1); s_a and s_b are common to a layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regrow.methods.scales import Scale, Values, near
from regrow.weighting import Side, Trained, units_of

_SCALE = 1e-5  # tau_0, of the common scale of a layer
_CONSTANT = 1 + math.log(2)


def gamma_divergence(mean: Tensor, logvar: Tensor, scale: float) -> Tensor:
    """KL of a log-normal to Gamma(1/2, scale)."""
    return (mean + logvar.exp() / 2).exp() / scale + 0.5 * math.log(scale) - 0.5 * (mean + logvar + _CONSTANT)


def inverse_gamma_divergence(mean: Tensor, logvar: Tensor) -> Tensor:
    """KL of a log-normal to the inverse Gamma(1/2, 1)."""
    return (logvar.exp() / 2 - mean).exp() - 0.5 * (logvar - mean + _CONSTANT)


def _first_horseshoe(layer: Trained) -> dict[str, Side]:
    """z = 1 with the common scale where its prior has it, so that each b_i stands for what its unit is worth."""
    units, one = units_of(layer.layer), (1,) * len(layer.layer.shape)
    start = {
        "sa": (2 * math.log(_SCALE), one),
        "sb": (0.0, one),
        "a": (0.0, units),
        "b": (-2 * math.log(_SCALE), units),
    }
    means = {f"{name}_mean": near(layer, value, shape, f"{name}_mean") for name, (value, shape) in start.items()}
    logvars = {f"{name}_logvar": near(layer, -9.0, shape, f"{name}_logvar") for name, (_, shape) in start.items()}
    return {**means, **logvars}


def _log_normal(side: Values) -> tuple[Tensor, Tensor]:
    """Mean and variance of log z."""
    mean = 0.5 * (side["sa_mean"] + side["sb_mean"] + side["a_mean"] + side["b_mean"])
    variance = 0.25 * sum(side[f"{name}_logvar"].exp() for name in ("sa", "sb", "a", "b"))
    return mean, variance  # type: ignore[return-value]  # of tensors


def _expected(side: Values) -> Tensor:
    mean, variance = _log_normal(side)
    return (mean + variance / 2).exp()


def _horseshoe_divergence(side: Values) -> Tensor:
    parts = {name: (side[f"{name}_mean"], side[f"{name}_logvar"]) for name in ("sa", "sb", "a", "b")}
    common = gamma_divergence(*parts["sa"], _SCALE**2).sum() + inverse_gamma_divergence(*parts["sb"]).sum()
    return common + gamma_divergence(*parts["a"], 1.0).sum() + inverse_gamma_divergence(*parts["b"]).sum()


def _beyond_mode(side: Values) -> Tensor:
    """Minus the logarithm of the mode of z."""
    mean, variance = _log_normal(side)
    return variance - mean


HORSESHOE = Scale(
    first=_first_horseshoe,
    gauss=lambda side: (_log_normal(side)[0], _log_normal(side)[1].sqrt()),
    of=torch.exp,
    mean=_expected,
    divergence=_horseshoe_divergence,
    noise=_beyond_mode,
)
