"""L0 regularisation: gates that learn to close, with a penalty on the expected number of open ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.methods import options
from regrow.methods.hard_concrete import CLOSED, gate, open_probability, rest_gate
from regrow.methods.method import Method
from regrow.methods.units import as_read
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When, constant
from regrow.topology.view import LayerView
from regrow.weighting import Side, Trained, Weighting, units_of

_LIMIT = math.log(100)


def method(
    strength: float = 0.1,
    decay: float = 5e-4,
    gates: Literal["unit", "weight"] = "unit",
    drop: float = 0.5,
    input_drop: float = 0.2,
    gate_lr: float | None = None,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""L0 regularisation with hard-concrete gates (Louizos, Welling & Kingma 2018).

    A gate z in [0, 1] per input feature (linear) or filter (convolution), or per weight; w' = w z, one draw per step:

        s = sig((log u - log(1 - u) + log_alpha)/beta),   z = clip(s (zeta - gamma) + gamma, 0, 1)
        P(z != 0) = sig(log_alpha - beta log(-gamma/zeta))
        loss + 1/N sum over gates P(z != 0) (lambda |group| + decay/2 ||w_group||^2)
        evaluation: z = clip(sig(log_alpha)(zeta - gamma) + gamma, 0, 1), multiplied into w; a unit whose outputs nobody reads goes too

    beta 2/3, gamma -0.1, zeta 1.1. log_alpha starts at N(log((1 - r)/r), 0.01) and stays within +-log 100.

    Args:
        strength: lambda, per weight.
        decay: weight decay inside the penalty; the optimizer's own must be 0.
        gates: one per unit, or per weight.
        drop, input_drop: r, and that of a linear first layer.
        gate_lr: learning rate of log_alpha, which follows the weights' schedule; None is the weights' own.
        budget, finetune_steps: ``exact`` cuts to the budget by log_alpha so many steps before the end, and trains on with fixed masks.
    """
    options.at_least("strength", strength, 0)
    options.at_least("decay", decay, 0)
    options.one_of("gates", gates, ("unit", "weight"))
    for name, rate in (("drop", drop), ("input_drop", input_drop)):
        options.within(name, rate, 0, 1, open_low=True, open_high=True)

    options.rate("gate_lr", gate_lr)

    def opened(layer: Trained) -> dict[str, Side]:
        first = layer.index == 0 and isinstance(layer.layer.module, nn.Linear)
        rate = input_drop if first else drop
        shape = units_of(layer.layer) if gates == "unit" else layer.theta.shape
        kind = torch.promote_types(layer.theta.dtype, torch.float32)
        like = torch.empty(shape, dtype=kind, device=layer.theta.device)
        drawn = randomness.normal(like, layer.rng("gates", layer.index))
        return {"log_alpha": Side(drawn * 0.01 + math.log((1 - rate) / rate), lr=gate_lr)}

    def penalty(layers: Sequence[Trained]) -> Tensor:
        return torch.stack([expected(layer, strength, decay) for layer in layers]).sum()

    steps, read = options.finetune(budget, finetune_steps), as_read if gates == "unit" else None
    outcome = Outcome(_log_alpha, constant(CLOSED), finetune_steps=steps, together=read)
    return Method(
        name="l0",
        paper="Louizos et al.",
        year=2018,
        summary="gates on units or weights learn to close under a penalty on open ones",
        initial=everything,
        weighting=Weighting(
            side=opened,
            show=lambda layer: layer.theta * rest_gate(layer.side["log_alpha"]),
            train=lambda layer: layer.theta * _drawn_gate(layer),
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
        extra_memory="1 dense tensor per layer (theta), 1 number per gate and its optimizer state",
    )


def expected(layer: Trained, strength: float, decay: float) -> Tensor:
    """The penalty of one layer."""
    log_alpha, theta = layer.side["log_alpha"], layer.theta
    squares = theta.square().sum_to_size(log_alpha.shape)
    size = theta.numel() / log_alpha.numel()
    return (open_probability(log_alpha) * (strength * size + 0.5 * decay * squares)).sum() / layer.samples


def _drawn_gate(layer: Trained) -> Tensor:
    log_alpha = layer.side["log_alpha"]
    u = randomness.uniform(log_alpha, layer.rng("gate", layer.index)).to(log_alpha.dtype).clamp(1e-6, 1 - 1e-6)
    return gate(log_alpha, u)


def _clamp(layer: Trained) -> None:
    layer.side["log_alpha"].clamp_(-_LIMIT, _LIMIT)


def _log_alpha(layer: LayerView) -> Tensor:
    return layer.side["log_alpha"].detach().expand(layer.mask.shape)
