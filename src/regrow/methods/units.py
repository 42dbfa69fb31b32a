"""Masks unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from regrow.topology.cycle import Change, to_masks
from regrow.topology.score import magnitude
from regrow.topology.select import largest
from regrow.topology.view import LayerView, Update


def largest_of_units(layer: LayerView, count: int) -> Tensor:
    """The ``count`` largest |w| of a layer, as many in every unit, one more in the first ones; ties to the lower index."""
    size = layer.units(magnitude(layer))
    each, more = divmod(count, size.shape[0])
    order = size.argsort(dim=1, descending=True, stable=True)
    kept = torch.zeros_like(size, dtype=torch.bool).scatter_(1, order[:, :each], True)
    kept[:more].scatter_(1, order[:more, each : each + 1], True)
    return layer.from_units(kept).contiguous()


def junctions(layers: Sequence[LayerView]) -> list[int]:
    """The places of linear layers whose outputs the next layer, linear too, reads one by one."""
    pairs = enumerate(pairwise(layers))
    return [
        place
        for place, (layer, following) in pairs
        if following.index == layer.index + 1
        and layer.mask.ndim == following.mask.ndim == 2
        and layer.output_dim == following.output_dim == 0
        and following.mask.shape[1] == layer.mask.shape[0]
    ]


def read_units(update: Update, change: Change) -> Change:
    """Without the weights of units that the next layer, if it is linear, reads nothing of."""
    masks = [mask.clone() for mask in change.masks]
    for place, (layer, following) in enumerate(zip(update.layers, update.layers[1:], strict=False)):
        outputs, inputs = layer.mask.shape[layer.output_dim], following.mask.shape[-1]
        wide_enough = inputs == outputs if layer.mask.ndim == 2 else inputs % outputs == 0
        if following.index != layer.index + 1 or following.mask.ndim != 2 or not wide_enough:
            continue
        read = masks[place + 1].any(0).view(outputs, -1).any(1)
        kept = layer.from_units(layer.units(masks[place]) & read[:, None])
        masks[place] = kept if bool(kept.any()) else largest(masks[place].float(), 1, torch.ones_like(kept))
    return to_masks(update, masks)
