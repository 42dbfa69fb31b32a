"""Layer-wise optimal brain surgeon: remove what its layer's output misses least, and let the rest make up for it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from regrow.calibration import refuse_without_moments, second_moments
from regrow.methods import options
from regrow.methods.method import Method
from regrow.methods.surgeon import exact, inverse, stale, summed
from regrow.scope import Layer
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import everything
from regrow.topology.schedule import When, in_rounds, updates_for_rounds
from regrow.topology.view import LayerView, Update

_UPDATES = {"stale": stale, "exact": exact, "summed": summed}


def method(
    dense_share: float = 0.5,
    rounds: int = 1,
    until: float = 0.7,
    updates: Literal["stale", "exact", "summed"] = "stale",
    damping: float = 1e-6,
) -> Method:
    r"""Learning to prune deep networks via layer-wise optimal brain surgeon (Dong, Chen & Pan 2017), from a trained network.

    Per layer, with Y its inputs (1 appended for the bias; patches for convolutions), one H for all its units:

        H = Y^T Y / n + damping I,   L_q = w_q^2 / (2 Hinv_qq)
        smallest L_q first:  w <- w - w_q / Hinv_qq Hinv[:, q],  removed weights back to 0, biases compensated too

    ``stale`` keeps order and Hinv of the start, as the authors do; ``exact`` renews both after every removal, unit by unit
    (O(inputs^2) each: minutes for wide layers), and chooses over units by cost, the core of OBC and SparseGPT; ``summed`` removes
    all at once and adds up the updates, as WoodFisher (Singh & Alistarh 2020) does.

    Pass ``calibration=``: pairs (inputs, targets), or a function that returns them.

    Args:
        dense_share: share of the run that trains dense first; 0 prunes a trained network after the first step.
        rounds: prune at once, or in so many equal ratios with training between.
        until: share of the run at which the last round ends.
        updates: ``stale``, ``exact`` or ``summed``.
        damping: on the diagonal of H.
    """
    options.within("dense_share", dense_share, 0, 1, open_high=True)
    options.at_least("rounds", rounds, 1)
    options.within("until", until, dense_share, 1, open_low=rounds > 1, open_high=True)
    options.one_of("updates", updates, _UPDATES)
    options.above("damping", damping, 0)
    remove = _UPDATES[updates]

    def operate(update: Update) -> Change:
        targets = update.targets or [layer.nnz for layer in update.layers]
        if all(layer.nnz <= target for layer, target in zip(update.layers, targets, strict=True)):
            return to_masks(update, [layer.mask for layer in update.layers])
        source = update.source
        sparse = [source.layers[layer.index] for layer in update.layers]
        moments = second_moments(source.model, sparse, source.calibration, source.average)
        parts = [
            prune_layer(layer, where, moment, target, remove, damping)
            for layer, where, moment, target in zip(update.layers, sparse, moments, targets, strict=True)
        ]
        change = to_masks(update, [mask for mask, _, _ in parts])
        return Change(
            change.masks, change.removed, change.grown, [weight for _, weight, _ in parts], [bias for *_, bias in parts]
        )

    return Method(
        name="l-obs",
        paper="Dong et al.",
        year=2017,
        summary="remove the weights whose layer's output can do without, and adjust the others",
        initial=everything,
        rewire=operate,
        when=When("epoch", at_least=updates_for_rounds(dense_share, until, rounds)),
        density=lambda target: in_rounds(target, dense_share, until, rounds),
        calibration="batches",
        fits=lambda model, layers: refuse_without_moments(layers),
        budget="schedule",
        sets_values=True,
        neutral={},
        extra_memory="inverse of (inputs + 1)^2 numbers per layer while pruning",
    )


def prune_layer(
    view: LayerView, layer: Layer, moment: Tensor, target: int, remove: object, damping: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """New mask, weight and bias of one layer with ``target`` weights left."""
    bias: nn.Parameter | None = getattr(layer.module, "bias", None)
    rows = view.units(view.weight).double()
    inner = rows.shape[1]
    if bias is not None:
        rows = torch.cat([rows, bias.detach().double()[:, None]], dim=1)
    inverted = inverse(moment[: rows.shape[1], : rows.shape[1]], damping)
    new, gone = remove(rows, inverted, view.numel - target, inner)  # type: ignore[operator]
    mask = view.from_units(~gone).contiguous()
    return mask, view.from_units(new[:, :inner]), None if bias is None else new[:, inner]
