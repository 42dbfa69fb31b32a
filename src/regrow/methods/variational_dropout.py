"""Sparse variational dropout: every weight learns its own noise, and goes where noise drowns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When, constant
from regrow.topology.score import wide
from regrow.topology.view import LayerView
from regrow.weighting import Product, Side, Trained, Weighting

_K1, _K2, _K3 = 0.63576, 1.87320, 1.48695
_EPSILON = 1e-8


def method(
    strength: float = 1.0,
    warm_up: tuple[float, float] = (0.025, 0.1),
    log_sigma2: float = -10.0,
    threshold: float = 3.0,
    noise_lr: float | None = None,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Variational dropout sparsifies deep networks (Molchanov, Ashukha & Vetrov 2017).

    q(w) = N(theta, sigma^2), log_alpha = log sigma^2 - log theta^2 (within [-8, 8] in training), m = log_alpha < threshold:

        training:    out = x (theta m) + sqrt(x^2 sigma^2 + 1e-8) eps + bias,   eps ~ N(0, 1) per output
        loss + rw(t)/N sum KL,  KL = k1 - k1 sig(k2 + k3 log_alpha) + 0.5 log(1 + 1/alpha),   k = 0.63576, 1.87320, 1.48695
        evaluation:  out = x (theta m) + bias

    rw rises linearly from 0 to ``strength`` between the two shares of the run. Use Adam: plain SGD does not get there.

    Args:
        strength: rw at the end; 1 is the variational bound.
        warm_up: where rw begins and ends to rise, as shares of the run (theirs: epochs 5 and 20 of 200).
        log_sigma2: its first value.
        threshold: of log_alpha; 3 is a dropout rate of 0.953.
        noise_lr: learning rate of log_sigma2, which follows the weights' schedule; None is the weights' own.
        budget, finetune_steps: ``exact`` cuts to the budget by -log_alpha so many steps before the end, and trains on with fixed masks.
    """
    options.at_least("strength", strength, 0)
    if not (isinstance(warm_up, (list, tuple)) and len(warm_up) == 2):
        options.stages("warm_up", warm_up)
    options.ordered("warm_up[0]", warm_up[0], "warm_up[1]", warm_up[1])

    options.rate("noise_lr", noise_lr)

    def noise(layer: Trained) -> dict[str, Side]:
        kind = torch.promote_types(layer.theta.dtype, torch.float32)
        return {"log_sigma2": Side(torch.full_like(layer.theta, log_sigma2, dtype=kind), lr=noise_lr)}

    def penalty(layers: Sequence[Trained]) -> Tensor:
        done = (layers[0].progress - warm_up[0]) / (warm_up[1] - warm_up[0])
        weight = strength * min(max(done, 0.0), 1.0) / layers[0].samples
        return weight * torch.stack([divergence(clipped(layer)).sum() for layer in layers]).sum()

    outcome = Outcome(_signal, constant(-threshold), finetune_steps=options.finetune(budget, finetune_steps))
    return Method(
        name="variational-dropout",
        paper="Molchanov et al.",
        year=2017,
        summary="learn the noise of every weight; those that drown in it go",
        initial=everything,
        weighting=Weighting(side=noise, product=product, penalty=penalty, decays=False, samples=True),
        outcome=outcome,
        rewire=outcome.rewire,
        when=When(1, journal_every=100),
        budget="outcome",
        extra_memory="2 dense tensors per layer (theta, log_sigma2) and the latter's optimizer state",
    )


def log_alpha_of(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """The logarithm of noise over signal."""
    return log_sigma2 - (theta.square() + _EPSILON).log()


def clipped(layer: Trained) -> Tensor:
    """log_alpha as training uses it."""
    return log_alpha_of(layer.theta, layer.side["log_sigma2"]).clamp(-8, 8)


def divergence(log_alpha: Tensor) -> Tensor:
    """KL between q and the log-uniform prior, approximated, per weight."""
    return _K1 - _K1 * (_K2 + _K3 * log_alpha).sigmoid() + 0.5 * nn.functional.softplus(-log_alpha)


def product(call: Product) -> Tensor:
    """Local reparametrisation: noise on outputs. As theirs, convolutions mask the variance too, linear layers do not."""
    trained = call.trained
    variance = clipped(trained).exp() * trained.theta.square()
    if not isinstance(trained.layer.module, nn.Linear):
        variance = variance * trained.mask
    mean = call.multiply(call.x, (trained.theta * trained.mask).to(call.x.dtype), call.bias)
    spread = call.multiply(call.x.square(), variance.to(call.x.dtype), None)
    return mean + (spread.clamp_min(0) + _EPSILON).sqrt() * call.normal(mean)


def _signal(layer: LayerView) -> Tensor:
    return -log_alpha_of(wide(layer.weight), layer.side["log_sigma2"].detach())
