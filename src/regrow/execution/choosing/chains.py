"""The fastest way through the layers of a model in order of execution: which are sparse, where the layout changes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One module in order of execution, in milliseconds of forward + backward.

    Attributes:
        name: of the module.
        ordinary: on ordinary tensors (for a sparse layer: dense computation).
        chwn: on CHWN tensors (for a sparse layer: sparse kernels); None if it must have ordinary ones.
        enter: to bring its input to the CHWN layout and the gradient back.
        leave: to bring a CHWN input to the ordinary layout and the gradient back.
        layer: whether it may choose; other modules (batch norm, pooling) follow the layout they get.
    """

    name: str
    ordinary: float
    chwn: float | None = None
    enter: float = 0.0
    leave: float = 0.0
    layer: bool = True


@dataclass(frozen=True)
class Way:
    """Names of the layers that compute sparse, and the sum of all times."""

    ms: float
    sparse: frozenset[str]


def fastest(stages: Sequence[Stage]) -> Way:
    """The cheapest assignment, by dynamic programming over the layout between stages; equal times stay ordinary.

    Example:
        >>> stages = [Stage("a", 5, 4, enter=2, leave=2), Stage("norm", 1, 1, layer=False), Stage("b", 5, 3, enter=2, leave=2)]
        >>> fastest(stages).ms, sorted(fastest(stages).sparse)
        (10.0, ['a', 'b'])
        >>> fastest(stages[:1]).sparse
        frozenset()
    """
    ways = {False: Way(0.0, frozenset()), True: Way(math.inf, frozenset())}
    for stage in stages:
        ways = {chwn: _through(stage, ways, chwn) for chwn in (False, True)}
    return min(ways[False], ways[True], key=lambda way: way.ms)


def duration(stages: Sequence[Stage], sparse: frozenset[str]) -> float:
    """Milliseconds of one assignment."""
    total, chwn = 0.0, False
    for stage in stages:
        wanted = (stage.name in sparse) if stage.layer else chwn
        total += _conversion(stage, chwn, wanted) + _own(stage, wanted)
        chwn = wanted
    return total


def _through(stage: Stage, ways: dict[bool, Way], chwn: bool) -> Way:
    candidates = [Way(way.ms + _conversion(stage, before, chwn), way.sparse) for before, way in ways.items()]
    best = min(candidates, key=lambda way: way.ms)
    chosen = best.sparse | {stage.name} if stage.layer and chwn else best.sparse
    return Way(best.ms + _own(stage, chwn), chosen)


def _own(stage: Stage, chwn: bool) -> float:
    if not chwn:
        return stage.ordinary
    return math.inf if stage.chwn is None else stage.chwn


def _conversion(stage: Stage, before: bool, after: bool) -> float:
    if before == after:
        return 0.0
    return (stage.enter if after else stage.leave) if stage.layer else math.inf
