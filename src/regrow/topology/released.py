"""The topology update as the sparse-momentum authors released it, with its drift: for comparison, not for use.

p_i = p, or min(p, 1 - density_i) where density_i > 0.8 and c_i > 1 / layers        r_i = ceil(p_i nnz_i)
prune    the missing_i + r_i smallest |w| of all positions, zeros of present weights among them; if r_i = 0 the zeros alone
share    ceil(c_i (removed + correction)); what passes 0.99 (missing_i + r_i) goes to all layers alike, again and again
grow     the floor(g_i) largest |M| of positions missing after pruning; those without momentum are ties with present ones
correct  d = budget - weights now;  correction <- correction / 4 + 3 d / 4 + mean of all d so far

Exact ties go to the lowest index here, where the released code leaves them to an unstable sort.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology.cycle import Change
from regrow.topology.prune import keep_one
from regrow.topology.redistribute import Share
from regrow.topology.view import LayerView, Update, needs_of

_FULL, _MOST_ROUNDS = 0.99, 1000


@dataclass(frozen=True)
class Released:
    """One topology update by the authors' rules; the correction and its history are kept in the update's memory."""

    share: Share

    @property
    def needs(self) -> frozenset:
        """What the share reads."""
        return needs_of(self.share) | {"momentum"}

    def __call__(self, update: Update) -> Change:
        """Prune, share out, grow, note the difference to the first number of weights."""
        layers, memory = update.layers, update.memory
        raw = [self.share(layer) for layer in layers]
        shares = [share / sum(raw) if sum(raw) else 0.0 for share in raw]
        counts = [_count(layer, share, update.rate, len(layers)) for layer, share in zip(layers, shares, strict=True)]
        removed = [_pruned(layer, count) for layer, count in zip(layers, counts, strict=True)]
        for layer, gone in zip(layers, removed, strict=True):
            layer.removed = count_of(gone)
        budget = memory.setdefault("budget", float(sum(layer.nnz for layer in layers)))
        total = sum(layer.removed for layer in layers) + memory.get("correction", 0.0)
        room = [_FULL * (layer.missing + count) for layer, count in zip(layers, counts, strict=True)]
        amounts = released_shares([math.ceil(share * total) for share in shares], room)
        grown = [_grown(*row) for row in zip(layers, removed, map(math.floor, amounts), strict=True)]
        masks = [(v.mask & ~gone) | new for v, gone, new in zip(layers, removed, grown, strict=True)]
        _correct(memory, budget - sum(count_of(mask) for mask in masks))
        return Change(masks, removed, grown)


def released_shares(amounts: Sequence[float], room: Sequence[float]) -> list[float]:
    """What passes the room of a layer is divided by the number of all layers, full ones too, until nothing is left over.

    Example:
        >>> [round(amount) for amount in released_shares([10, 2], [4, 90])]
        [4, 8]
    """
    found, extra = list(amounts), 0.0
    for _ in range(_MOST_ROUNDS):
        wanted = [amount + extra for amount in found]
        found = [min(amount, most) for amount, most in zip(wanted, room, strict=True)]
        over = sum(amount - most for amount, most in zip(wanted, room, strict=True) if amount > most)
        if over <= 0:
            break
        extra = over / len(found)
    return found


def _count(layer: LayerView, share: float, rate: float, layers: int) -> int:
    room = layer.missing / layer.numel
    return math.ceil((min(rate, room) if room < 0.2 and share > 1 / layers else rate) * layer.nnz)


def _pruned(layer: LayerView, count: int) -> Tensor:
    if count == 0:
        gone = layer.mask & (layer.weight == 0)
    else:
        order = torch.sort(layer.weight.abs().reshape(-1), stable=True).indices
        gone = _marked(layer, order[: layer.missing + count]) & layer.mask
    return keep_one(layer, gone, layer.weight.abs())


def _grown(layer: LayerView, gone: Tensor, count: int) -> Tensor:
    left = layer.mask & ~gone
    scores = layer.momentum.abs().masked_fill(left, 0.0)
    order = torch.sort(scores.reshape(-1), descending=True, stable=True).indices
    return _marked(layer, order[: max(0, count)]) & ~left


def _marked(layer: LayerView, where: Tensor) -> Tensor:
    marks = torch.zeros(layer.numel, dtype=torch.bool, device=layer.mask.device)
    marks[where] = True
    return marks.view(layer.mask.shape)


def _correct(memory: dict[str, float], difference: float) -> None:
    memory["updates"] = memory.get("updates", 0.0) + 1
    memory["differences"] = memory.get("differences", 0.0) + difference
    mean = memory["differences"] / memory["updates"]
    memory["correction"] = 0.25 * memory.get("correction", 0.0) + 0.75 * difference + mean
