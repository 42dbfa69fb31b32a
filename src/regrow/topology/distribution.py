"""How many weights each layer gets: densities per layer as pure functions, rounded to an exact total."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from regrow.errors import ConfigurationError, unknown

Shape = Sequence[int]
Distribution = Callable[[Sequence[Shape], float], list[float]]

# How far explicit densities of all layers may be from the whole network's: somebody rounded them.
_TOLERANCE = 0.01


def uniform(shapes: Sequence[Shape], density: float) -> list[float]:
    """The same density in every layer."""
    return [density] * len(shapes)


def erdos_renyi(shapes: Sequence[Shape], density: float) -> list[float]:
    """ER: density_l = eps * (n_in + n_out) / (n_in * n_out), kernel size ignored (Mocanu et al. 2018)."""
    return _scaled(shapes, [(s[0] + s[1]) / (s[0] * s[1]) if len(s) > 1 else 1.0 for s in shapes], density)


def erdos_renyi_kernel(shapes: Sequence[Shape], density: float) -> list[float]:
    """ERK: density_l = eps * sum(shape_l) / prod(shape_l) (Evci et al. 2020).

    Layers that would pass density 1 become dense and eps is solved again for the rest.

    Example:
        >>> [round(d, 4) for d in erdos_renyi_kernel([(300, 784), (100, 300), (10, 100)], 0.05)]
        [0.0385, 0.1113, 0.9185]
    """
    return _scaled(shapes, [sum(s) / math.prod(s) for s in shapes], density)


DISTRIBUTIONS: dict[str, Distribution] = {"uniform": uniform, "er": erdos_renyi, "erk": erdos_renyi_kernel}


def layer_densities(
    distribution: str | Distribution | Mapping[str, float],
    names: Sequence[str],
    shapes: Sequence[Shape],
    density: float,
) -> list[float]:
    """Resolve a distribution given by name, as a function, or as a map from layer pattern to density.

    With a map, the layers that no pattern matches share what is left of the whole network's density uniformly.
    """
    if isinstance(distribution, str):
        if distribution not in DISTRIBUTIONS:
            raise unknown("distribution", distribution, DISTRIBUTIONS)
        return DISTRIBUTIONS[distribution](shapes, density)
    if callable(distribution):
        found = distribution(shapes, density)
        if len(found) != len(shapes):
            raise ConfigurationError(f"the distribution gave {len(found)} densities for {len(shapes)} layers")
        return found
    return _explicit(distribution, names, shapes, density)


def refuse_contradiction(densities: Sequence[float], shapes: Sequence[Shape], density: float) -> None:
    """An error for explicit densities of all layers that do not make the density of the whole network."""
    sizes = [math.prod(s) for s in shapes]
    found = sum(d * n for d, n in zip(densities, sizes, strict=True))
    if abs(found - density * sum(sizes)) > max(len(sizes), _TOLERANCE * density * sum(sizes)):
        raise ConfigurationError(
            f"the explicit densities make {found / sum(sizes):.4g} of all weights, not the density {density:g}: change one, or leave a "
            "layer out, which then gets what is left"
        )


def exact_counts(densities: Sequence[float], shapes: Sequence[Shape], total: int) -> list[int]:
    """Round densities to counts with an exact sum and 1 <= count_i <= n_i.

    Largest remainders get the missing units (ties to the lower index); units too many, which the lower limit of one
    can cause, are taken from the largest counts.

    Example:
        >>> exact_counts([0.05, 0.05], [(10, 10), (2, 2)], 5)
        [4, 1]
    """
    sizes = [math.prod(s) for s in shapes]
    if not len(sizes) <= total <= sum(sizes):
        raise ConfigurationError(
            f"a budget of {total} weights does not fit {len(sizes)} layers with {sum(sizes)} weights in all: "
            "every layer needs at least one weight; raise the density or take layers out of the scope"
        )
    wanted = [min(max(d * n, 1.0), float(n)) for d, n in zip(densities, sizes, strict=True)]
    counts = [max(1, math.floor(w + 1e-9)) for w in wanted]
    hand_out(counts, wanted, sizes, total)
    while sum(counts) > total:
        counts[max(range(len(counts)), key=lambda i: counts[i])] -= 1
    return counts


def reachable(counts: Sequence[int], present: Sequence[int]) -> list[int]:
    """Counts of the same sum that removal alone can reach: no layer above what it has.

    Rounding to an exact sum may give a layer one weight more at a lower density than at a higher one.

    Example:
        >>> reachable([3, 4, 2], [2, 6, 4])
        [2, 5, 2]
    """
    within = [min(c, p) for c, p in zip(counts, present, strict=True)]
    hand_out(within, counts, present, min(sum(counts), sum(present)))
    return within


def budget(density: float, sizes: Sequence[int]) -> int:
    """K = round(density * number of weights), half up."""
    return math.floor(density * sum(sizes) + 0.5)


def hand_out(counts: list[int], wanted: Sequence[float], limits: Sequence[int], total: int) -> None:
    """Raise counts to an exact total, in place: the largest remainders first, ties to the lower index, none above its limit."""
    while (left := total - sum(counts)) > 0:
        # Rounded, so that equal remainders are ties whatever their last bits say.
        order = sorted(range(len(counts)), key=lambda i: round(counts[i] - wanted[i], 9))
        for i in [i for i in order if counts[i] < limits[i]][:left]:
            counts[i] += 1


def _scaled(shapes: Sequence[Shape], raw: Sequence[float], density: float) -> list[float]:
    """Solve sum_l min(1, eps * raw_l) * n_l = density * sum_l n_l for eps, closing the layers that overflow."""
    sizes = [math.prod(s) for s in shapes]
    dense: set[int] = set()
    while len(dense) < len(sizes):
        open_layers = [i for i in range(len(sizes)) if i not in dense]
        room = density * sum(sizes) - sum(sizes[i] for i in dense)
        eps = room / sum(raw[i] * sizes[i] for i in open_layers)
        highest = max(raw[i] for i in open_layers)
        if eps * highest <= 1:
            return [1.0 if i in dense else eps * raw[i] for i in range(len(sizes))]
        dense.update(i for i in open_layers if raw[i] == highest)
    return [1.0] * len(sizes)


def _explicit(
    densities: Mapping[str, float], names: Sequence[str], shapes: Sequence[Shape], density: float
) -> list[float]:
    for pattern, value in densities.items():
        if not any(fnmatchcase(n, pattern) for n in names):
            raise unknown("layer pattern in distribution", pattern, names)
        if not 0 < value <= 1:
            raise ConfigurationError(f"density of {pattern!r} must lie in (0, 1], got {value}")
    fixed = {n: v for n in names for p, v in densities.items() if fnmatchcase(n, p)}
    sizes = {n: math.prod(s) for n, s in zip(names, shapes, strict=True)}
    rest = sum(size for n, size in sizes.items() if n not in fixed)
    left = density * sum(sizes.values()) - sum(sizes[n] * v for n, v in fixed.items())
    share = left / rest if rest else 0.0
    if rest and not 0 < share <= 1:
        raise ConfigurationError(
            f"the explicit densities leave density {share:.4g} for the other layers; change them or the density {density}"
        )
    return [fixed.get(n, share) for n in names]
