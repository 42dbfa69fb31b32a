"""Dynamic network surgery: prune below a threshold, splice back above a higher one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.marks import count_of
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import Setup, everything
from regrow.topology.outcome import Outcome
from regrow.topology.schedule import When
from regrow.topology.score import magnitude
from regrow.topology.select import largest
from regrow.topology.view import LayerView, Update
from regrow.weighting import Weighting


def method(
    c: float | Sequence[float] = 2.0,
    dense_share: float = 0.5,
    stop: float = 0.9,
    gamma: float = 1e-4,
    power: float = 1.0,
    start_density: float | None = None,
    budget: Literal["outcome", "exact"] = "outcome",
    finetune_steps: int = 0,
) -> Method:
    r"""Dynamic network surgery (Guo, Yao & Chen 2016), from a trained network.

    Dense theta lives beside the model; forward uses theta * m, and the gradient there updates all of theta:

        once, per layer: mu, sd of |theta|,  b = max(mu + c sd, 0)
        at step t of the surgery, per layer with probability (1 + gamma t)^-power:
            m: 1 -> 0 where |theta| <= 0.9 b,   0 -> 1 where |theta| > 1.1 b,   else unchanged

    Args:
        c: height of the threshold in standard deviations, one number or one per layer; may be negative. LeNet-5: 1, 3, 4, 2.5.
        dense_share: share of the run that trains dense first; 0 for a network that is trained already.
        stop: share of the run after which masks rest.
        gamma, power: how fast surgery becomes rare.
        start_density: solve c of each layer so that this share of |theta| lies above b when surgery begins.
        budget, finetune_steps: ``exact`` cuts to the budget by |theta| / b so many steps before the end, and trains on with fixed masks.
    """
    options.within("dense_share", dense_share, 0, 1, open_high=True)
    options.within("stop", stop, dense_share, 1, open_low=True)
    options.at_least("gamma", gamma, 0)
    options.at_least("power", power, 0)
    if start_density is not None:
        options.within("start_density", start_density, 0, 1, open_low=True, open_high=True)

    def first(setup: Setup) -> list[Tensor]:
        if not isinstance(c, (int, float)) and len(c) != len(setup.layers):
            raise ConfigurationError(f"c has {len(c)} values for {len(setup.layers)} sparse layers: give one for each")
        return everything(setup)

    def border(layer: LayerView) -> Tensor:
        if "border" not in layer.memory:
            layer.memory["border"] = _border(layer, _of_layer(c, layer.index), start_density)
        return layer.memory["border"]

    def surgery(update: Update) -> Change:
        if update.progress < dense_share:
            return to_masks(update, [layer.mask for layer in update.layers])
        first = int(update.memory.setdefault("surgery", float(update.step)))
        chance = (1 + gamma * (update.step - first)) ** -power if update.progress <= stop else 0.0
        masks = []
        for layer in update.layers:
            height = border(layer)
            drawn = float(torch.rand((), generator=layer.rng("surgery", layer.index), dtype=torch.float64))
            masks.append(operate(layer.weight, layer.mask, height) if drawn < chance else layer.mask)
        return to_masks(update, masks)

    def ratio(layer: LayerView) -> Tensor:
        return magnitude(layer) / border(layer).clamp_min(1e-30)

    outcome = Outcome(ratio, finetune_steps=options.finetune(budget, finetune_steps))
    return Method(
        name="dns",
        paper="Guo et al.",
        year=2016,
        summary="prune small weights at random moments, splice them back when they grow again",
        initial=first,
        weighting=Weighting(),
        outcome=outcome,
        rewire=surgery,
        when=When(1, journal_every=100),
        budget="outcome",
        neutral={"c": -1e9},
        extra_memory="1 dense tensor per layer (theta)",
    )


def operate(theta: Tensor, mask: Tensor, border: Tensor) -> Tensor:
    """The mask after pruning below 0.9 b and splicing above 1.1 b; the best weight stays."""
    size = theta.abs()
    after = (mask & (size > 0.9 * border)) | (size > 1.1 * border)
    return after if count_of(after) else largest(size.float(), 1, torch.ones_like(after))


def _border(layer: LayerView, c: float, share: float | None) -> Tensor:
    size = magnitude(layer)
    if share is not None:
        kept = max(1, round(share * layer.numel))
        return size.flatten().kthvalue(layer.numel - kept).values if kept < layer.numel else size.new_zeros(())
    present = size[size != 0]
    if present.numel() == 0:
        return size.new_zeros(())
    return (present.mean() + c * present.std(correction=0)).clamp_min(0)


def _of_layer(c: float | Sequence[float], index: int) -> float:
    return float(c) if isinstance(c, (int, float)) else float(c[index])
