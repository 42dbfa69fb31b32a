"""DEEP-R: a random walk over networks; connections whose sign flips are replaced at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from regrow import randomness
from regrow.errors import ConfigurationError
from regrow.execution.kernels.masking import mask_
from regrow.marks import positions
from regrow.methods import options
from regrow.methods.method import Method, StepView
from regrow.topology import score, signs
from regrow.topology.grow import Grow
from regrow.topology.prune import sign_crossing
from regrow.topology.schedule import When, steps

_NOISE_RATE = 0.01


def method(
    l1: float = 1e-5,
    noise: float = 1e-5,
    signs: str = "fixed",
    temperature: Sequence[float] = (),
    stages: Sequence[float] = (),
    stop: float = 1.0,
) -> Method:
    r"""Deep rewiring (Bellec et al. 2018).

    Each position k has a fixed random sign s_k and theta_k; w_k = s_k theta_k if theta_k > 0, else the connection is dormant.
    After every step:

        theta_k <- theta_k - eta dE/dtheta_k - eta alpha + eta * noise * nu_k    (active k, nu_k ~ N(0, 1))
        theta_k < 0: k becomes dormant, and a dormant position of the layer, drawn at random, starts at theta = 1e-12

    The temperature of the paper is T = eta * noise^2 / 2. The authors use plain SGD without momentum.

    Args:
        l1: alpha, strength of the l1 prior.
        noise: scale of the gradient noise.
        signs: ``fixed`` per position, or ``free``, as DSR's authors read the method to compare with it: weights start at 0, where none was
            removed in this step, and go when their sign changes from one step to the next.
        temperature: T of each stage; sqrt(2 * 0.01 * T) nu_k is then added to the gradient as long as masks change, in place of ``noise``.
            Theirs: 1e-5, 1e-8, 1e-12, 1e-15.
        stages: shares of the run at which the next temperature begins.
        stop: share of the run after which masks stay.
    """
    options.at_least("l1", l1, 0)
    options.at_least("noise", noise, 0)
    options.one_of("signs", signs, ("fixed", "free"))
    options.stages("stages", stages)
    options.within("stop", stop, 0, 1, open_low=True)
    _check_temperature(temperature, stages)
    free = signs == "free"

    pull = pull_to_zero(l1, free)

    @score.per_weight
    def pull_and_heat(layer: StepView) -> None:
        pull(layer)
        if layer.progress < stop:
            add_noise(layer.grad, layer, math.sqrt(2 * _NOISE_RATE * steps(temperature, stages)(layer.progress)))

    @score.per_weight
    def walk(layer: StepView) -> None:
        add_noise(layer.weight, layer, layer.lr * noise)

    return Method(
        name="deep-r",
        paper="Bellec et al.",
        year=2018,
        summary="random walk; a weight that crosses zero is replaced by a random one",
        prepare=fix_signs,
        adjust=pull_and_heat if temperature else pull,
        perturb=None if temperature else walk,
        prune=sign_crossing,
        grow=Grow(score.random, "layer", "not-just-pruned" if free else "missing", "zero", 0.0 if free else 1e-12),
        when=When(1, until=stop, journal_every=100),
        rate_needs_steps=stop < 1 or bool(temperature),
        extra_memory="1 byte per weight (signs); per present weight in compact storage",
    )


def _check_temperature(temperature: Sequence[float], stages: Sequence[float]) -> None:
    if temperature and len(temperature) != len(stages) + 1:
        raise ConfigurationError(
            f"temperature has {len(temperature)} values and stages {len(stages)}: one temperature more than there are stages"
        )
    for value in temperature:
        options.at_least("temperature", value, 0)


def add_noise(tensor: Tensor, layer: StepView, scale: float) -> None:
    """Add normal noise to the entries of present weights."""
    active = positions(layer.mask)
    drawn = randomness.normal(layer.weight.take(active), layer.rng("noise", layer.index))
    tensor.put_(active, drawn * scale, accumulate=True)


@score.per_weight
def fix_signs(layer: StepView) -> None:
    """Draw s_k: the sign of the first weight where one is present, a coin flip elsewhere."""
    signs.fix(layer, layer.mask, layer.rng("sign", layer.index))


def pull_to_zero(l1: float, free: bool = False) -> Callable[[StepView], None]:
    """The l1 prior: active connections are drawn to zero by alpha. ``free`` signs are those before this step."""

    @score.per_weight
    def pull(layer: StepView) -> None:
        if free:
            signs.follow(layer)
        push = signs.shown(layer)
        mask_(push, layer.mask.view(torch.uint8))
        layer.grad.add_(push, alpha=l1)

    return pull
