"""A topology update moves values: weights and optimizer state of what was lost go, those of what was born begin."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.marks import positions
from regrow.momentum import reset_slots, shaped_slots
from regrow.parameter import SparseParameter
from regrow.scope import Layer
from regrow.topology.grow import Grow
from regrow.topology.view import LayerView


def move_values(
    sparse: SparseParameter,
    layer: Layer,
    view: LayerView,
    mask: Tensor,
    regrown: Tensor,
    grow: Grow | None,
    window_stays_open: bool,
) -> None:
    """Bring one layer's values from the mask of ``view`` to ``mask``; the masks themselves are written elsewhere.

    Shadow weights keep theirs. ``regrown`` weights were pruned and grown again in the same update.
    """
    if sparse.theta is not None:
        return
    lost, born = view.mask & ~mask, mask & ~view.mask
    seeds = None if grow is None else sparse.moments.seeds_for(grow.state)
    if window_stays_open:
        sparse.moments.keep(lost, layer.rows)
    started = born | regrown if grow is not None and grow.just_pruned == "zero" else born
    blank = started if seeds is None else born  # what was present has momentum of its own, better than a seed
    slots = shaped_slots(sparse.optimizer, sparse.parameter)
    seeds = None if seeds is None else _bands(seeds, layer)
    reset_slots(_bands(slots, layer), lost, blank, mask & ~blank, seeds)
    if "step_size" in slots:  # Rprop's: from zero it would take for ever to grow
        layer.band(slots["step_size"]).masked_fill_(blank, float(sparse.group()["lr"]))
    weight = layer.band(sparse.parameter.data)
    gone, new = positions(lost), positions(started)
    weight.put_(gone, weight.new_zeros(len(gone)))
    weight.put_(new, _first_values(grow, view, new).to(weight))


def _first_values(grow: Grow | None, view: LayerView, new: Tensor) -> Tensor:
    if grow is None or not grow.value:
        return torch.zeros(len(new))
    return view.memory["sign"].take(new) * grow.value


def _bands(tensors: dict[str, Tensor], layer: Layer) -> dict[str, Tensor]:
    return {name: layer.band(tensor) for name, tensor in tensors.items()}
