"""How grown weights begin to learn: their gradients rise from nothing to whole over the first steps.

g <- g * age / length      for weights grown at the last topology update, age = steps since then, length = share * interval

Growth takes the weights that the loss is most sensitive to, thousands at once and where it has fallen already. At a learning rate that
suited the network before, their first steps overshoot: the loss jumps, and without batch norm all units may die.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regrow.marks import Marks, places, positions
from regrow.topology.score import per_weight
from regrow.topology.view import LayerView

if TYPE_CHECKING:
    from regrow.methods.method import StepView

_BORN, _AGE = "newborn", "newborn_age"


def note_born(layers: Sequence[LayerView], grown: Sequence[Tensor]) -> None:
    """Remember which weights an update grows; those pruned a moment ago have learnt already."""
    for layer, new in zip(layers, grown, strict=True):
        born = new & ~layer.before
        layer.memory[_BORN] = born.positions if isinstance(born, Marks) else positions(born)
        layer.memory[_AGE] = torch.zeros((), dtype=torch.int64)


def warm_up(share: float) -> Callable[[StepView], None]:
    """Scale the gradients of newborn weights over this share of the interval between updates; with SGD that is their learning rate."""

    @per_weight
    def scale(layer: StepView) -> None:
        born = layer.memory.get(_BORN)
        if born is None:
            return
        age, length = int(layer.memory[_AGE]) + 1, math.ceil(share * layer.interval)
        if age >= length:
            del layer.memory[_BORN], layer.memory[_AGE]
            return
        layer.memory[_AGE] = torch.tensor(age)
        if layer.where is not None:
            born = places(layer.where, born)
            born = born[born >= 0]
        layer.grad.put_(born, layer.grad.take(born) * (age / length))

    return scale
