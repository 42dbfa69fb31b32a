"""A mixture of Gaussians over weights: one component stays at zero, the others learn where to be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LOG_2PI = math.log(2 * math.pi)
_CHUNK = 1 << 16
ZERO_PRIOR, OTHER_PRIOR = (5e3, 2.0), (250.0, 0.1)


def first(like: Tensor, number: int, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """Means evenly between -spread and spread, log precisions of std 0.25 (with the component at zero), even proportions."""
    places = torch.arange(number, dtype=like.dtype, device=like.device) * 2 / max(1, number - 1) - 1
    means = places * spread if number > 1 else like.new_full((1,), spread)
    return means, like.new_full((number + 1,), -2 * math.log(0.25)), like.new_zeros(number)


def components(shared: Mapping[str, Tensor], zero_weight: float) -> tuple[Tensor, Tensor, Tensor]:
    """Means, log precisions and log proportions of all components, the one at zero first."""
    means = torch.cat([shared["mean"].new_zeros(1), shared["mean"]])
    others = math.log1p(-zero_weight) + shared["rho"].log_softmax(0)
    proportions = torch.cat([others.new_full((1,), math.log(zero_weight)), others])
    return means, shared["log_precision"], proportions


def log_densities(weights: Tensor, means: Tensor, gam: Tensor, log_pi: Tensor) -> Tensor:
    """log pi_j N(w | mu_j, exp(-gam_j)), [weights, components]."""
    gaps = weights[:, None] - means
    return log_pi + 0.5 * (gam - _LOG_2PI) - 0.5 * gam.exp() * gaps.square()


def log_likelihood(weights: Tensor, means: Tensor, gam: Tensor, log_pi: Tensor) -> Tensor:
    """sum log p(w), a chunk at a time."""
    return _LogLikelihood.apply(weights, means, gam, log_pi)


class _LogLikelihood(torch.autograd.Function):
    """Scores are quadratic in w, and gradients need sums of responsibilities only: matrix products, and one exponential of each score."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, means: Tensor, gam: Tensor, log_pi: Tensor) -> Tensor:
        precision = gam.exp()
        constant = log_pi + 0.5 * (gam - _LOG_2PI) - 0.5 * precision * means.square()
        curves = torch.stack([constant, precision * means, -0.5 * precision])
        sides = torch.stack([torch.ones_like(means), precision * means, precision], dim=1)
        total, moments, pulls = weights.new_zeros(()), weights.new_zeros(3, len(means)), []
        for chunk in weights.flatten().split(_CHUNK):
            powers = torch.stack([torch.ones_like(chunk), chunk, chunk.square()])
            scores = powers.T @ curves
            highest = scores.amax(1, keepdim=True)
            parts = scores.sub_(highest).exp_()
            mass, pulled, stiff = (parts @ sides).T
            total += (mass.log() + highest[:, 0]).sum()
            moments += (powers / mass) @ parts
            pulls.append((pulled - chunk * stiff) / mass)
        ctx.save_for_backward(torch.cat(pulls).view_as(weights), means, precision, moments)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        pulls, means, precision, (count, first, second) = ctx.saved_tensors
        square = second - 2 * means * first + means.square() * count
        return (
            grad * pulls,
            grad * precision * (first - means * count),
            grad * 0.5 * (count - precision * square),
            grad * count,
        )


def hyper_prior(gam: Tensor) -> Tensor:
    """-log of the Gamma priors on the precisions, up to constants, per component."""
    a, b = (
        torch.tensor(pair, dtype=gam.dtype, device=gam.device) for pair in zip(ZERO_PRIOR, OTHER_PRIOR, strict=True)
    )
    first = torch.zeros(len(gam), dtype=torch.long, device=gam.device)
    first[1:] = 1
    return (1 - a[first]) * gam + b[first] * gam.exp()


def divergence(mean_i: Tensor, gam_i: Tensor, mean_j: Tensor, gam_j: Tensor) -> Tensor:
    """KL of one Gaussian to another."""
    return 0.5 * (gam_i - gam_j) + gam_j.exp() / 2 * ((-gam_i).exp() + (mean_i - mean_j).square()) - 0.5


def merged(means: Tensor, gam: Tensor, log_pi: Tensor, below: float = 1e-10) -> tuple[Tensor, Tensor, Tensor]:
    """Components that say the same made one: proportions added, means and precisions averaged by them. The one at zero stays first."""
    kept = [(means[0] * 0, gam[0], log_pi[0])]
    for mean, g, p in zip(means[1:], gam[1:], log_pi[1:], strict=True):
        for place, (other, h, q) in enumerate(kept):
            if float(divergence(mean, g, other, h)) < below:
                total = torch.logaddexp(p, q)
                mine, theirs = (p - total).exp(), (q - total).exp()
                centre = other if place == 0 else mine * mean + theirs * other
                kept[place] = (centre, (mine * g.exp() + theirs * h.exp()).log(), total)
                break
        else:
            kept.append((mean, g, p))
    return tuple(torch.stack(part) for part in zip(*kept, strict=True))  # type: ignore[return-value]


def nearest(weights: Tensor, means: Tensor, gam: Tensor, log_pi: Tensor) -> tuple[Tensor, Tensor]:
    """For each weight the mean of its best component but zero, and by how much that is likelier than zero."""
    values, leads = [], []
    for chunk in weights.flatten().split(_CHUNK):
        scores = log_densities(chunk, means, gam, log_pi)
        if scores.shape[1] == 1:  # all merged into zero
            values.append(torch.zeros_like(chunk))
            leads.append(torch.full_like(chunk, -1.0) - chunk.abs().reciprocal().clamp_max(1e30))
            continue
        best = scores[:, 1:].max(dim=1)
        values.append(means[1:][best.indices])
        leads.append(best.values - scores[:, 0])
    return torch.cat(values).view_as(weights), torch.cat(leads).view_as(weights)
