"""Soft weight-sharing: weights gather around a few learnt values, most of them around zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regrow.methods import mixture, options
from regrow.methods.method import Method
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.score import wide
from regrow.topology.view import LayerView, Update
from regrow.weighting import Side, Trained, Weighting

_STEPS = 30 * 235  # of the authors' retraining: 30 epochs of 60,000 images in batches of 256


def method(
    strength: float = 0.003,
    zero_weight: float = 0.99,
    components: int = 15,
    spread: float = 0.6,
    dense_share: float = 0.5,
    mean_lr: float | None = None,
    shape_lr: float | None = None,
    quantise: bool = True,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Soft weight-sharing for neural network compression (Ullrich, Meeds & Welling 2017), from a trained network.

    A mixture of Gaussians over all weights is learnt with them; component 0 has mean 0 and a fixed proportion pi_0:

        loss + tau/N ( -sum_w log sum_j pi_j N(w | mu_j, exp(-gam_j)) + sum_j [(1 - a_j) gam_j + b_j exp(gam_j)] )
        (a, b) = (5e3, 2) for j = 0, (250, 0.1) else;   pi_j = (1 - pi_0) softmax(rho)_j

    In evaluation a weight is the mean of its likeliest component; those of component 0 are gone.

    Args:
        strength: tau.
        zero_weight: pi_0.
        components: how many beside the one at zero; their means start evenly between -``spread`` and ``spread``, std 0.25.
        dense_share: share of the run that trains without any of this first; 0 for a network that is trained already.
        mean_lr, shape_lr: learning rates of mu, and of gam and rho, which follow the weights' schedule. Default: 1e-4 and 3e-3, as
            published for 7,050 steps, and as much larger as the steps that remain are fewer, so that the mixture gets as far.
        quantise: show means; False shows the weights themselves where they are not of component 0.
        budget, finetune_steps: ``exact`` cuts to the budget by log odds against component 0, and trains on with fixed masks.
    """
    options.at_least("strength", strength, 0)
    options.within("zero_weight", zero_weight, 0, 1, open_low=True, open_high=True)
    options.at_least("components", components, 1)
    options.above("spread", spread, 0)
    options.within("dense_share", dense_share, 0, 1, open_high=True)

    def penalty(layers: Sequence[Trained]) -> Tensor:
        if layers[0].progress < dense_share:
            return layers[0].theta.sum() * 0
        parts = mixture.components(layers[0].shared, zero_weight)
        fit = torch.stack([mixture.log_likelihood(layer.theta, *parts) for layer in layers]).sum()
        return strength / layers[0].samples * (mixture.hyper_prior(parts[1]).sum() - fit)

    def odds(layer: LayerView) -> Tensor:
        shared = {name: tensor.detach() for name, tensor in layer.shared.items()}
        parts = mixture.merged(*mixture.components(shared, zero_weight))
        value, lead = mixture.nearest(wide(layer.weight), *parts)
        layer.memory["value"] = value if quantise else wide(layer.weight).clone()
        return lead

    outcome = Outcome(odds, finetune_steps=options.finetune(budget, finetune_steps))

    def assign(update: Update) -> Change:
        if update.progress <= dense_share:
            return to_masks(update, [layer.mask for layer in update.layers])
        return outcome.rewire(update)

    return Method(
        name="soft-weight-sharing",
        paper="Ullrich et al.",
        year=2017,
        summary="weights gather around a few learnt values; those around zero go",
        initial=everything,
        weighting=Weighting(
            shared=lambda layers: _mixture(layers, components, spread, _rates(layers, dense_share, mean_lr, shape_lr)),
            show=_shown,
            train=lambda layer: layer.theta * 1.0,
            penalty=penalty,
            decays=False,
            samples=True,
        ),
        outcome=outcome,
        rewire=assign,
        when=When("epoch", last=True),
        budget="outcome",
        neutral={"strength": 0.0, "quantise": False},
        extra_memory="2 dense tensors per layer (weights, their components' means)",
    )


def _shown(layer: Trained) -> Tensor:
    return layer.memory["value"] * layer.mask if "value" in layer.memory else layer.theta * layer.mask


def _rates(
    layers: Sequence[Trained], dense_share: float, mean: float | None, shape: float | None
) -> tuple[float, float]:
    """Learning rates of the means and of the rest of the mixture."""
    steps = layers[0].steps
    faster = 1.0 if steps is None else max(1.0, _STEPS / max(1.0, steps * (1 - dense_share)))
    return mean or 1e-4 * faster, shape or 3e-3 * faster


def _mixture(layers: Sequence[Trained], components: int, spread: float, rates: tuple[float, float]) -> dict[str, Side]:
    means, gam, rho = mixture.first(wide(layers[0].theta), components, spread)
    return {"mean": Side(means, rates[0]), "log_precision": Side(gam, rates[1]), "rho": Side(rho, rates[1])}
