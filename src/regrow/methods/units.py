"""Masks unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from regrow.topology.score import magnitude
from regrow.topology.view import LayerView


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


def as_read(layers: Sequence[LayerView], scores: list[Tensor]) -> list[Tensor]:
    """Scores of weights no better than what the next layer, if it is linear, reads of their unit: nobody misses the others."""
    found = list(scores)
    for place in reversed(range(len(layers) - 1)):
        layer, following = layers[place], layers[place + 1]
        outputs, inputs = layer.mask.shape[layer.output_dim], following.mask.shape[-1]
        wide_enough = inputs == outputs if layer.mask.ndim == 2 else inputs % outputs == 0
        if following.index == layer.index + 1 and following.mask.ndim == 2 and wide_enough:
            read = found[place + 1].amax(0).view(outputs, -1).amax(1)
            found[place] = layer.from_units(layer.units(found[place]).minimum(read[:, None]))
    return found
