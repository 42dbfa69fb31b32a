"""A topology update moves values: weights and optimizer state of what was lost go, those of what was born begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regrow.compact import CompactParameter
from regrow.marks import Marks, among, places, positions, taken
from regrow.momentum import SQUARED, reset_slots, shaped_slots
from regrow.parameter import SparseParameter
from regrow.scope import Layer
from regrow.support import Support
from regrow.topology import signs
from regrow.topology.bands import CompactView
from regrow.topology.cycle import Change
from regrow.topology.grow import Grow
from regrow.topology.view import LayerView, Update


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


def located(views: Sequence[LayerView], change: Change) -> Change:
    """The same change, removed weights of layers in compact storage by their positions."""
    pairs = zip(views, change.removed, strict=True)
    return replace(change, removed=[v.marks(gone) if isinstance(v, CompactView) else gone for v, gone in pairs])


def move_entries(
    sparse: SparseParameter,
    layer: Layer,
    view: LayerView,
    mask: Marks,
    regrown: Marks,
    grow: Grow | None,
    window_stays_open: bool,
) -> None:
    """The same in compact storage: weights, gradient and optimizer state come to the positions of ``mask`` together."""
    assert isinstance(sparse, CompactParameter)
    old, new = sparse.support.positions, mask.positions
    came_from = places(old, new)
    lost, born = ~among(new, old), came_from < 0
    if window_stays_open:
        sparse.moments.keep_at(old[lost], lost)
    started = born | among(regrown.positions, new) if grow is not None and grow.just_pruned == "zero" else born
    seeds = None if grow is None else sparse.moments.seeds_at(grow.state, new[born])
    blank = started if seeds is None else born
    slots, state = shaped_slots(sparse.optimizer, sparse.parameter), sparse.state()
    for name, slot in slots.items():
        state[name] = _moved_slot(name, taken(slot, came_from), blank, seeds)
        if name == "step_size":  # Rprop's: from zero it would take for ever to grow
            state[name][blank] = float(sparse.group()["lr"])
    values = taken(sparse.parameter.data, came_from)
    values[started] = _first_values(grow, view, new[started]).to(values)
    grad = None if sparse.parameter.grad is None else taken(sparse.parameter.grad, came_from)
    sparse.put(Support(mask), values)
    sparse.parameter.grad = grad


def set_values(layers: Sequence[Layer], owners: Sequence[SparseParameter], update: Update, change: Change) -> None:
    """Write the weights and biases that came with the masks."""
    for view, weight in zip(update.layers, change.weights or (), strict=False):
        layers[view.index].band(owners[view.index].trained).copy_(weight)
    for view, bias in zip(update.layers, change.biases or (), strict=False):
        if bias is not None:
            layers[view.index].module.get_parameter("bias").data.copy_(bias)


def _moved_slot(name: str, slot: Tensor, blank: Tensor, seeds: dict[str, Tensor] | None) -> Tensor:
    """Start the state of new weights, as :func:`regrow.momentum.reset_slots` does."""
    slot[blank] = 0
    if seeds is not None and bool(blank.any()):
        if name in seeds:
            slot[blank] = seeds[name].to(slot.dtype)
        elif name in SQUARED and not bool(blank.all()):
            slot[blank] = float(slot[~blank].float().mean())
    return slot


def _first_values(grow: Grow | None, view: LayerView, new: Tensor) -> Tensor:
    if grow is None or not grow.value:
        return torch.zeros(len(new))
    return signs.at(view.memory, new) * grow.value


def _bands(tensors: dict[str, Tensor], layer: Layer) -> dict[str, Tensor]:
    return {name: layer.band(tensor) for name, tensor in tensors.items()}
