"""DEEP-R: a random walk over networks; connections whose sign flips are replaced at random."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from regrow import randomness
from regrow.execution.masking import mask_
from regrow.marks import positions
from regrow.methods import options
from regrow.methods.method import Method, StepView
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import sign_crossing
from regrow.topology.schedule import When


def method(l1: float = 1e-5, noise: float = 1e-5) -> Method:
    r"""Deep rewiring (Bellec et al. 2018).

    Each position k has a fixed random sign s_k and theta_k; w_k = s_k theta_k if theta_k > 0, else the connection is dormant.
    After every step:

        theta_k <- theta_k - eta dE/dtheta_k - eta alpha + eta * noise * nu_k    (active k, nu_k ~ N(0, 1))
        theta_k < 0: k becomes dormant, and a dormant position of the layer, drawn at random, starts at theta = 1e-12

    The temperature of the paper is T = eta * noise^2 / 2. The authors use plain SGD without momentum.

    Args:
        l1: alpha, strength of the l1 prior.
        noise: scale of the gradient noise.
    """
    options.at_least("l1", l1, 0)
    options.at_least("noise", noise, 0)

    def shake(layer: StepView) -> None:
        active = positions(layer.mask)
        drawn = randomness.normal(layer.weight.take(active), layer.rng("noise", layer.index))
        layer.weight.put_(active, drawn * (layer.lr * noise), accumulate=True)

    return Method(
        name="deep-r",
        paper="Bellec et al.",
        year=2018,
        summary="random walk; a weight that crosses zero is replaced by a random one",
        prepare=fix_signs,
        adjust=pull_to_zero(l1),
        perturb=shake,
        prune=sign_crossing,
        grow=Grow(score.random, just_pruned="zero", value=1e-12),
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        extra_memory="1 byte per weight (signs)",
    )


def fix_signs(layer: StepView) -> None:
    """Draw s_k: the sign of the first weight where one is present, a coin flip elsewhere."""
    coin = torch.where(randomness.uniform(layer.mask, layer.rng("sign", layer.index)) < 0.5, -1, 1)
    own = torch.where(layer.mask & (layer.weight != 0), layer.weight.sign().to(coin.dtype), coin)
    layer.memory["sign"] = own.to(torch.int8)


def sign_of(layer: StepView) -> Tensor:
    """s_k in the weights' own type."""
    return layer.memory["sign"].to(layer.weight.dtype)


def pull_to_zero(l1: float) -> Callable[[StepView], None]:
    """The l1 prior: active connections are drawn to zero by alpha."""

    def pull(layer: StepView) -> None:
        push = sign_of(layer)
        mask_(push, layer.mask.view(torch.uint8))
        layer.grad.add_(push, alpha=l1)

    return pull
