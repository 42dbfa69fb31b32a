"""What changed at each update: the exploration record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regrow.marks import count_of
from regrow.topology.view import LayerView


@dataclass(frozen=True)
class LayerRecord:
    """One layer at one topology update."""

    layer: str
    before: int
    removed: int
    grown: int
    regrown_at_once: int
    after: int
    density: float
    momentum_share: float | None
    distance_to_start: float
    distance_to_previous: float
    ever_active: float


@dataclass(frozen=True)
class Record:
    """One topology update."""

    update: int
    step: int
    prune_rate: float
    budget: int
    density: float
    layers: tuple[LayerRecord, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, ready for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Record:
        """The inverse of :meth:`as_dict`."""
        layers = tuple(LayerRecord(**row) for row in data["layers"])
        return Record(**{**data, "layers": layers})


def pack(mask: Tensor) -> Tensor:
    """A bool tensor as bits in a uint8 vector: one eighth of a byte per weight."""
    return torch.from_numpy(np.packbits(mask.cpu().numpy().reshape(-1)))


def unpack(bits: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of :func:`pack`."""
    flat = np.unpackbits(bits.cpu().numpy(), count=shape.numel())
    return torch.from_numpy(flat.astype(bool)).view(shape)


def distance(a: Tensor, b: Tensor) -> float:
    """Share of weights not common to two masks: |a xor b| / (|a| + |b|), from 0 (equal) to 1 (disjoint)."""
    total = count_of(a) + count_of(b)
    return count_of(a ^ b) / total if total else 0.0


def layer_record(
    view: LayerView, mask: Tensor, removed: Tensor, grown: Tensor, share: float | None, start: Tensor, ever: Tensor
) -> LayerRecord:
    """What one update did to one layer; ``view.mask`` is the mask before it."""
    after = count_of(mask)
    return LayerRecord(
        layer=view.name,
        before=view.nnz,
        removed=count_of(removed),
        grown=count_of(grown),
        regrown_at_once=count_of(removed & grown),
        after=after,
        density=after / view.numel,
        momentum_share=share,
        distance_to_start=distance(mask, start),
        distance_to_previous=distance(mask, view.mask),
        ever_active=count_of(ever) / view.numel,
    )
