"""Where to: how the freed budget is shared between layers, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from regrow.errors import ConfigurationError, NonFiniteError
from regrow.topology.distribution import hand_out
from regrow.topology.score import is_per_weight
from regrow.topology.view import LayerView, Need, needs, needs_of

Share = Callable[[LayerView], float]


@needs("present momentum")
def mean_momentum(layer: LayerView) -> float:
    """q_i = mean(|M_i| over present weights), 0 for a layer without any."""
    if layer.nnz == 0:
        return 0.0
    return float(layer.momentum[layer.mask].abs().double().mean()) * layer.momentum_scale


def momentum_shares(layers: Sequence[LayerView], needs: frozenset[Need]) -> list[float | None]:
    """q_i / sum_j q_j where momentum is collected; else nothing is known of it."""
    if not needs & {"momentum", "present momentum"}:
        return [None] * len(layers)
    means = [mean_momentum(layer) for layer in layers]
    return [mean / sum(means) if sum(means) > 0 else 0.0 for mean in means]


def mean_magnitude(layer: LayerView) -> float:
    """mean(|W_i| over present weights)."""
    return float(layer.weight[layer.mask].abs().double().mean()) if layer.nnz else 0.0


def present(layer: LayerView) -> float:
    """Number of present weights before pruning."""
    return float(layer.nnz)


def survivors(layer: LayerView) -> float:
    """Number of weights that survived pruning (DSR)."""
    return float(layer.nnz - layer.removed)


def size(layer: LayerView) -> float:
    """Number of positions: what the sparse-momentum authors' code calls redistribution "none"."""
    return float(layer.numel)


@needs("present momentum")
def mean_root_second_moment(layer: LayerView) -> float:
    """mean(sqrt(v_i) over present weights), for the Adam family."""
    return float(layer.second_moment[layer.mask].double().sqrt().mean()) if layer.nnz else 0.0


def per_cost(share: Share, power: float) -> Share:
    """share_i / cost_i ** power: trades error against compute; power 0 is the plain share."""

    def priced(layer: LayerView) -> float:
        return share(layer) / layer.cost**power

    priced.per_weight = share in SHARES.values() or is_per_weight(share)  # type: ignore[attr-defined]
    return share if power == 0 else needs(*needs_of(share))(priced)


SHARES: dict[str, Share] = {
    "momentum": mean_momentum,
    "magnitude": mean_magnitude,
    "nonzeros": present,
    "survivors": survivors,
    "size": size,
    "second-moment": mean_root_second_moment,
}


@dataclass(frozen=True)
class Redistribute:
    """Give the freed budget to layers in proportion to ``share``.

    What does not fit into a full layer goes to the others, in ``equal`` or ``proportional`` parts (``overflow``).
    """

    share: Share = mean_momentum
    overflow: Literal["equal", "proportional"] = "equal"

    def __call__(self, layers: Sequence[LayerView], total: int, capacity: Sequence[int]) -> list[int]:
        """How many weights each layer grows; the sum is exactly ``total``."""
        return allocate(self.shares(layers), total, capacity, self.overflow)

    def shares(self, layers: Sequence[LayerView]) -> list[float]:
        """What each layer asks for; what it lost, where none has a share."""
        shares = [self._share_of(layer) for layer in layers]
        return shares if sum(shares) > 0 else [float(layer.removed) for layer in layers]

    def _share_of(self, layer: LayerView) -> float:
        given, name = self.share(layer), getattr(self.share, "__name__", "a share")
        try:
            share = float(given)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigurationError(
                f"{name} gave no number but {type(given).__name__} for layer {layer.name}: a share is one number >= 0"
            ) from error
        if not (math.isfinite(share) and share >= 0):
            raise NonFiniteError(
                f"{name} gave {share} for layer {layer.name}: a share is a finite number >= 0; masks were left as they are"
            )
        return share


def allocate(
    shares: Sequence[float], total: int, capacity: Sequence[int], overflow: Literal["equal", "proportional"] = "equal"
) -> list[int]:
    """Split ``total`` in proportion to ``shares`` without exceeding any capacity, to exact integers.

    Water filling: what a full layer cannot take goes in equal parts (or in proportion to the shares) to the layers that
    still have room; at least one layer closes per round. Whole units left over by rounding go to the largest fractions,
    ties to the lower index.

    Example:
        >>> allocate([8, 1, 1], 18, [7, 95, 190])
        [7, 6, 5]
    """
    if total > sum(capacity):
        raise ValueError(f"cannot place {total} weights in room for {sum(capacity)}")
    norm = sum(shares)
    even = [1.0 / len(shares)] * len(shares)
    weights = [s / norm for s in shares] if norm > 0 else even
    return _round(_fill([total * w for w in weights], weights, capacity, overflow), total, capacity)


def _fill(amounts: list[float], weights: Sequence[float], capacity: Sequence[int], overflow: str) -> list[float]:
    for _ in range(len(amounts) + 1):
        excess = sum(max(0.0, a - c) for a, c in zip(amounts, capacity, strict=True))
        amounts = [min(a, float(c)) for a, c in zip(amounts, capacity, strict=True)]
        room = [i for i, (a, c) in enumerate(zip(amounts, capacity, strict=True)) if a < c]
        if excess <= 1e-9 or not room:
            break
        parts = [weights[i] for i in room] if overflow == "proportional" else [1.0] * len(room)
        if not sum(parts) > 0:
            parts = [1.0] * len(room)
        for i, part in zip(room, parts, strict=True):
            amounts[i] += excess * part / sum(parts)
    return amounts


def _round(amounts: Sequence[float], total: int, capacity: Sequence[int]) -> list[int]:
    counts = [min(math.floor(a + 1e-9), c) for a, c in zip(amounts, capacity, strict=True)]
    hand_out(counts, amounts, capacity, total)
    while sum(counts) > total:
        counts[max(range(len(counts)), key=lambda i: counts[i] - amounts[i])] -= 1
    return counts
