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
        travelling: on travelling tensors (for a sparse layer: sparse kernels); None if it must have ordinary ones.
        enter: to bring its input to the travelling layout and the gradient back.
        leave: to bring a travelling input to the ordinary layout and the gradient back.
        layer: whether it may choose; other modules (batch norm, pooling) follow the layout they get.
    """

    name: str
    ordinary: float
    travelling: float | None = None
    enter: float = 0.0
    leave: float = 0.0
    layer: bool = True


@dataclass(frozen=True)
class Way:
    """Names of the layers that travel (compute sparse), and the sum of all times."""

    ms: float
    sparse: frozenset[str]


def fastest(stages: Sequence[Stage]) -> Way:
    """The cheapest assignment, by dynamic programming over the layout between stages; equal cost stays ordinary.

    Example:
        >>> stages = [Stage("a", 5, 4, enter=2, leave=2), Stage("norm", 1, 1, layer=False), Stage("b", 5, 3, enter=2, leave=2)]
        >>> fastest(stages).ms, sorted(fastest(stages).sparse)
        (10.0, ['a', 'b'])
        >>> fastest(stages[:1]).sparse
        frozenset()
    """
    ways = {False: Way(0.0, frozenset()), True: Way(math.inf, frozenset())}
    for stage in stages:
        ways = {travels: _through(stage, ways, travels) for travels in (False, True)}
    return min(ways[False], ways[True], key=lambda way: way.ms)


def cost(stages: Sequence[Stage], sparse: frozenset[str]) -> float:
    """Milliseconds of one assignment."""
    total, travels = 0.0, False
    for stage in stages:
        wanted = (stage.name in sparse) if stage.layer else travels
        total += _conversion(stage, travels, wanted) + _own(stage, wanted)
        travels = wanted
    return total


def _through(stage: Stage, ways: dict[bool, Way], travels: bool) -> Way:
    candidates = [Way(way.ms + _conversion(stage, before, travels), way.sparse) for before, way in ways.items()]
    best = min(candidates, key=lambda way: way.ms)
    chosen = best.sparse | {stage.name} if stage.layer and travels else best.sparse
    return Way(best.ms + _own(stage, travels), chosen)


def _own(stage: Stage, travels: bool) -> float:
    if not travels:
        return stage.ordinary
    return math.inf if stage.travelling is None else stage.travelling


def _conversion(stage: Stage, before: bool, after: bool) -> float:
    if before == after:
        return 0.0
    return (stage.enter if after else stage.leave) if stage.layer else math.inf
