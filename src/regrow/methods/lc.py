"""Learning-compression: train towards a compressed copy that is compressed anew again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regrow.methods import options
from regrow.methods.method import Method
from regrow.methods.projections import advance, keep_largest, l0_penalty, l1_ball, l1_penalty, support
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.score import wide
from regrow.topology.view import Update
from regrow.weighting import Trained, Weighting

_REMEDY = "say form='constraint', which keeps one"
_FORMS = ("constraint", "l0-penalty", "l1-penalty", "l1-ball")


def method(
    dense_share: float = 0.3,
    mu: float = 9e-5,
    growth: float = 1.1,
    form: Literal["constraint", "l0-penalty", "l1-penalty", "l1-ball"] = "constraint",
    alpha: float = 1e-4,
    multipliers: bool = True,
    epochs: int = 1,
) -> Method:
    r"""Learning-compression (Carreira-Perpinan & Idelbayev 2018), from a trained network.

    w is trained dense; theta is its compressed copy, which evaluation uses; lambda are multipliers:

        L steps:  loss + mu/2 ||w - theta - lambda/mu||^2
        C step:   theta = C(w - lambda/mu),   lambda <- lambda - mu (w - theta),   mu <- growth * mu

    C keeps the K largest of all layers together (``constraint``: exact budget); with the other forms density is an outcome of ``alpha``.

    Args:
        dense_share: share of the run that trains without any of this first; 0 for a network that is trained already.
        mu, growth: the first mu, and its factor per C step.
        form: constraint on the number of weights; l0 or l1 penalty with weight alpha; or l1 norm per layer of at most alpha.
        alpha: weight of the penalty, or radius.
        multipliers: augmented Lagrangian; False is the quadratic penalty alone.
        epochs: epochs (or update intervals) per C step.
    """
    options.within("dense_share", dense_share, 0, 1, open_high=True)
    options.above("mu", mu, 0)
    options.at_least("growth", growth, 1)
    options.one_of("form", form, _FORMS)
    options.above("alpha", alpha, 0)
    options.at_least("epochs", epochs, 1)

    def compress(update: Update) -> Change:
        if update.progress <= dense_share:
            return to_masks(update, [layer.mask for layer in update.layers])
        strength = mu * growth ** int(update.memory.get("c_steps", 0.0))
        total = sum(update.targets or [])
        advance(update.layers, strength, multipliers, lambda values: _project(values, form, total, alpha, strength))
        update.memory["c_steps"] = update.memory.get("c_steps", 0.0) + 1
        for layer in update.layers:
            layer.memory["mu"] = torch.tensor(strength * growth, dtype=torch.float64)
        return to_masks(update, [support(layer.memory["kept"]) for layer in update.layers])

    exact = form == "constraint"
    return Method(
        name="lc",
        paper="Carreira-Perpinan & Idelbayev",
        year=2018,
        summary="train dense weights towards a compressed copy, compress them again, ever tighter",
        initial=everything,
        weighting=Weighting(show=_kept, train=lambda layer: layer.theta * 1.0, penalty=_distance),
        outcome=None if exact else Outcome(lambda layer: wide(layer.weight).abs(), remedy=_REMEDY),
        rewire=compress,
        when=When("epoch", epochs=epochs, last=True),
        density=(lambda target: lambda progress: 1.0 if progress <= dense_share else target) if exact else None,
        budget="schedule" if exact else "outcome",
        neutral={"mu": 1e-30, "growth": 1.0, "multipliers": False},
        extra_memory="3 dense tensors per layer (w, theta, lambda)",
    )


def _project(values: list[Tensor], form: str, total: int, alpha: float, mu: float) -> list[Tensor]:
    if form == "constraint":
        return keep_largest(values, total)
    if form == "l1-ball":
        return [l1_ball(value, alpha) for value in values]
    step = l0_penalty if form == "l0-penalty" else l1_penalty
    return [step(value, alpha, mu) for value in values]


def _kept(layer: Trained) -> Tensor:
    return layer.memory["kept"] if "kept" in layer.memory else layer.theta * layer.mask


def _distance(layers: Sequence[Trained]) -> Tensor:
    found = [layer for layer in layers if "kept" in layer.memory]
    if not found:
        return layers[0].theta.sum() * 0
    terms = []
    for layer in found:
        mu = float(layer.memory["mu"])
        gap = layer.theta - layer.memory["kept"] - layer.memory["multiplier"] / mu
        terms.append(0.5 * mu * gap.square().sum())
    return torch.stack(terms).sum()
