"""Which channels of a network must stay: the others nobody reads, or they are constants that their readers take into the bias.

Channels that can only go together (both sides of a sum, a channel and its norm, its pixels in a flattened vector, all of a group) are one
*strand*. A strand stays if the network's output or something opaque has part in it, or if a layer that stays reads one of its channels with
a weight that is not zero, unless that channel is a constant that the layer can fold: exactly, so not a non-zero one under zero padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from regrow.shipping.fold import double_bias, pads
from regrow.shipping.graph import LAYERS, Graph
from regrow.shipping.steps import Step, apply, steps_of


@dataclass(frozen=True)
class Channels:
    """For each node with known channels: which stay, and the value of those that are constant (NaN: not constant)."""

    stays: dict[fx.Node, Tensor]
    constant: dict[fx.Node, Tensor]
    steps: dict[fx.Node, Step]


def survey(graph: Graph) -> Channels:
    """Find what must stay."""
    steps = steps_of(graph)
    used = {node: reads(graph.of(node)) for node, step in steps.items() if step.kind == "layer"}
    constant = constants(graph, steps, used)
    strands = _Strands(graph, steps)
    stays, before = strands.pinned.copy(), None
    while before is None or bool((stays != before).any()):
        before = stays.copy()
        for node in reversed(used):
            source = steps[node].sources[0]
            if steps[source].known:
                layer = _layer(graph, node)
                kept = torch.from_numpy(stays[strands.atoms(node)])
                wanted = _inputs(layer, used[node][kept], kept) & ~foldable(layer, constant[source])
                stays |= strands.spread(source, wanted.numpy())
    stays |= strands.one_of_each(stays)
    known = [node for node, step in steps.items() if step.known]
    return Channels({node: torch.from_numpy(stays[strands.atoms(node)]) for node in known}, constant, steps)


def constants(graph: Graph, steps: dict[fx.Node, Step], used: dict[fx.Node, Tensor]) -> dict[fx.Node, Tensor]:
    """The value of every channel that is the same at every pixel whatever the input; NaN for others."""
    found: dict[fx.Node, Tensor] = {}
    for node, step in steps.items():
        if not step.known:
            continue
        if step.kind == "layer":
            found[node] = _layer_constants(_layer(graph, node), used[node], found.get(step.sources[0]))
        else:
            found[node] = apply(step, graph, [found[source] for source in step.sources])
    return found


def foldable(layer: nn.Module, given: Tensor) -> Tensor:
    """Which constant inputs a layer can take into its bias."""
    return ~given.isnan() & ((given == 0) | torch.tensor(not pads(layer)))


def reads(layer: nn.Module | None) -> Tensor:
    """Which outputs read which inputs (of their group): a weight that is not zero."""
    assert isinstance(layer, LAYERS)
    weight = layer.weight
    return (weight != 0).flatten(2).any(2) if weight.dim() > 2 else weight != 0


def input_count(layer: Any) -> int:
    """Inputs over all groups."""
    return layer.weight.shape[1] * getattr(layer, "groups", 1)


def by_group(layer: nn.Module, inputs: Tensor, outputs: Tensor) -> Tensor:
    """One number per input, as each of some outputs (marked) reads them: (outputs, inputs of a group), or one row for all."""
    groups: int = getattr(layer, "groups", 1)
    if groups == 1:
        return inputs[None]
    return inputs.view(groups, -1).repeat_interleave(len(outputs) // groups, dim=0)[outputs]


def folded(layer: nn.Module, given: Tensor, outputs: Tensor) -> Tensor:
    """What constant inputs (0: not one) add to some outputs (marked): the sum of weight times constant, in double precision."""
    weight: Tensor = layer.weight  # type: ignore[assignment]
    if getattr(layer, "groups", 1) == 1:
        some = given != 0
        taps = weight[outputs][:, some].double()
        return (taps.flatten(2).sum(2) if taps.dim() > 2 else taps) @ given[some]
    return (weight[outputs].double().flatten(2).sum(2) * by_group(layer, given, outputs)).sum(1)


def _layer(graph: Graph, node: fx.Node) -> nn.Module:
    layer = graph.of(node)
    assert isinstance(layer, LAYERS)
    return layer


def _layer_constants(layer: nn.Module, used: Tensor, given: Tensor | None) -> Tensor:
    given = torch.full((input_count(layer),), float("nan"), dtype=torch.float64) if given is None else given
    everything = torch.ones(len(used), dtype=torch.bool)
    constant = ~(used & ~by_group(layer, foldable(layer, given), everything)).any(1)
    value = torch.full((len(used),), float("nan"), dtype=torch.float64)
    value[constant] = double_bias(layer)[constant] + folded(layer, given.nan_to_num(), constant)
    return value


def _inputs(layer: nn.Module, used: Tensor, outputs: Tensor) -> Tensor:
    """The inputs that some outputs (marked, their rows of ``used``) read."""
    groups: int = getattr(layer, "groups", 1)
    if groups == 1:
        return used.any(0)
    full = torch.zeros(len(outputs), used.shape[1], dtype=torch.bool)
    full[outputs] = used
    return full.view(groups, -1, used.shape[1]).any(1).flatten()


class _Strands:
    """Channels of all nodes as one row of atoms; linked atoms stay or go together."""

    def __init__(self, graph: Graph, steps: dict[fx.Node, Step]) -> None:
        self._first, total = {}, 0
        for node, step in steps.items():
            self._first[node] = (total, step.width)
            total += step.width
        pairs = [pair for step in steps.values() if step.known for pair in self._links(graph, step, steps)]
        self._strand = _components(total, pairs)
        self.pinned = np.zeros(total, dtype=bool)
        for step in steps.values():
            # A group's outputs can only go with its inputs.
            grouped = step.kind == "layer" and getattr(graph.of(step.node), "groups", 1) > 1
            stuck = (step.node,) if grouped and not steps[step.sources[0]].known else ()
            for node in step.sources if step.kind == "opaque" else stuck:
                self.pinned |= self.spread(node, np.ones(steps[node].width, dtype=bool))

    def atoms(self, node: fx.Node) -> slice:
        """Where a node's channels are."""
        first, width = self._first[node]
        return slice(first, first + width)

    def spread(self, node: fx.Node, marked: np.ndarray) -> np.ndarray:
        """All atoms of strands that have one of a node's marked channels."""
        strands = np.zeros(len(self._strand), dtype=bool)
        strands[self._strand[self.atoms(node)][marked]] = True
        return strands[self._strand]

    def one_of_each(self, stays: np.ndarray) -> np.ndarray:
        """A strand for every node that would be left without channels: a layer needs at least one."""
        saved = stays.copy()
        for node, (_, width) in self._first.items():
            if width and not saved[self.atoms(node)].any():
                saved |= self.spread(node, np.arange(width) == 0)
        return saved

    def _links(self, graph: Graph, step: Step, steps: dict[fx.Node, Step]) -> list[tuple[np.ndarray, np.ndarray]]:
        own = np.arange(step.width) + self._first[step.node][0]
        known = [source for source in step.sources if steps[source].known]
        others = [np.arange(steps[source].width) + self._first[source][0] for source in known]
        if step.kind == "channels":
            return [(own, np.repeat(others[0], step.repeat))]
        if step.kind == "join":
            return [(own, other) for other in others]
        if step.kind == "stack":
            return [(own, np.concatenate(others))]
        groups = getattr(graph.of(step.node), "groups", 1)
        if groups == 1:
            return []
        heads = np.repeat(own[:: step.width // groups], step.width // groups)
        links = [(own, heads)]
        return links + [(other, np.repeat(own[:: step.width // groups], len(other) // groups)) for other in others]


def _components(count: int, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The connected component of each atom, by its first atom."""
    label = np.arange(count)
    if not pairs:
        return label
    first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
    while True:
        least = np.minimum(label[first], label[second])
        lower = label.copy()
        np.minimum.at(lower, first, least)
        np.minimum.at(lower, second, least)
        lower = lower[lower]  # as far as those have come already
        if bool((lower == label).all()):
            return label
        label = lower
