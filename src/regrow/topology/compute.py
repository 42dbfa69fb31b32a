"""Budgets in compute: counts of an exact sum whose cost stays within a limit.

counts_i ~ wanted_i / cost_i ** price,  lowest_i <= counts_i <= highest_i,  sum_i counts_i = total,  sum_i cost_i * counts_i <= limit

with the smallest price >= 0 that keeps the limit. A higher price moves weights to cheaper layers, so that the cost falls steadily; at the
end of that road every layer has its lowest count and the cheapest ones take the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from regrow.errors import ConfigurationError
from regrow.topology.distribution import hand_out

_SLACK = 1e-9
_STEPS, _HIGHEST_PRICE = 50, 64.0


@dataclass(frozen=True)
class Bounds:
    """How few and how many weights each layer may get."""

    lowest: Sequence[int]
    highest: Sequence[int]


def cost_of(counts: Sequence[float], costs: Sequence[float]) -> float:
    """sum_i cost_i * counts_i."""
    return math.fsum(count * cost for count, cost in zip(counts, costs, strict=True))


def affordable(counts: Sequence[float], costs: Sequence[float], limit: float) -> bool:
    """Whether the counts keep the limit, but for rounding in its last digits."""
    return cost_of(counts, costs) <= limit * (1 + _SLACK)


def cheapest(total: int, costs: Sequence[float], bounds: Bounds) -> list[int]:
    """The counts of this total with the least cost: the cheapest layers are filled first, ties to the lower index.

    Example:
        >>> cheapest(9, [4.0, 1.0, 2.0], Bounds([1, 1, 1], [9, 5, 9]))
        [1, 5, 3]
    """
    counts = list(bounds.lowest)
    for i in sorted(range(len(costs)), key=lambda i: costs[i]):
        counts[i] += max(0, min(bounds.highest[i] - counts[i], total - sum(counts)))
    return counts


def most(limit: float, costs: Sequence[float], bounds: Bounds) -> int:
    """The largest total that some counts within the limit have."""
    counts = list(bounds.lowest)
    for i in sorted(range(len(costs)), key=lambda i: costs[i]):
        left = limit * (1 + _SLACK) - cost_of(counts, costs)
        counts[i] += max(0, min(bounds.highest[i] - counts[i], math.floor(left / costs[i])))
    return sum(counts)


def within(
    wanted: Sequence[float], total: int, costs: Sequence[float], limit: float, bounds: Bounds
) -> tuple[list[int], float]:
    """Counts in proportion to ``wanted`` at the lowest price that keeps the limit, and that price; the
    highest where only :func:`cheapest` does.

    Example:
        >>> within([1.0, 1.0], 100, [10.0, 1.0], 460, Bounds([0, 0], [100, 100]))[0]
        [40, 60]
    """
    least = cheapest(total, costs, bounds)
    if not affordable(least, costs, limit):
        raise ValueError(f"{total} weights cost {cost_of(least, costs)} at least, more than {limit}")
    relative = [cost / min(costs) for cost in costs]

    def at(price: float) -> list[int]:
        return _shared([w * r**-price for w, r in zip(wanted, relative, strict=True)], total, bounds)

    if affordable(counts := at(0.0), costs, limit):
        return counts, 0.0
    low, high = 0.0, 1.0
    while not affordable(at(high), costs, limit):
        low, high = high, 2 * high
        if high > _HIGHEST_PRICE:
            return least, _HIGHEST_PRICE
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if affordable(at(middle), costs, limit) else (middle, high)
    return at(high), high


def refuse_infeasible(
    name: str, share: float, total: int, costs: Sequence[float], sizes: Sequence[int], dense: float
) -> None:
    """An error for a number of weights that cannot keep a share of the dense compute, with the nearest pairs that can."""
    bounds = Bounds([1] * len(sizes), sizes)
    least = cheapest(total, costs, bounds)
    if affordable(least, costs, share * dense):
        return
    need, fits = cost_of(least, costs) / dense, most(share * dense, costs, bounds)
    lower = f", or density={_below(fits / sum(sizes))}" if fits > len(sizes) else ""
    raise ConfigurationError(
        f"{total} weights cannot keep {name}={share:g}: even in the cheapest layers they take {need:.4g} of the dense compute. "
        f"Nearest that fit: {name}={_above(need)}{lower}"
    )


def _below(value: float) -> float:
    """Rounded down to four digits, so that the number printed is feasible too."""
    digits = 4 - math.ceil(math.log10(value))
    return math.floor(value * 10**digits) / 10**digits


def _above(value: float) -> float:
    digits = 4 - math.ceil(math.log10(value))
    return math.ceil(value * 10**digits) / 10**digits


def _shared(weights: Sequence[float], total: int, bounds: Bounds) -> list[int]:
    """min(max(scale * weights_i, lowest_i), highest_i) with the scale that makes the total, to exact integers."""
    floor = max(weights) * 1e-12 or 1.0
    weights = [max(weight, floor) for weight in weights]
    low, high = 0.0, max(h / w for h, w in zip(bounds.highest, weights, strict=True))
    for _ in range(2 * _STEPS):
        scale = (low + high) / 2
        enough = sum(_clipped(scale, weights, bounds)) >= total
        low, high = (low, scale) if enough else (scale, high)
    amounts = _clipped(high, weights, bounds)
    counts = [max(low, math.floor(amount + _SLACK)) for amount, low in zip(amounts, bounds.lowest, strict=True)]
    hand_out(counts, amounts, bounds.highest, total)
    while sum(counts) > total:
        open_layers = [i for i, count in enumerate(counts) if count > bounds.lowest[i]]
        counts[max(open_layers, key=lambda i: (counts[i] - amounts[i], i))] -= 1
    return counts


def _clipped(scale: float, weights: Sequence[float], bounds: Bounds) -> list[float]:
    triples = zip(weights, bounds.lowest, bounds.highest, strict=True)
    return [min(max(scale * weight, float(low)), float(high)) for weight, low, high in triples]
