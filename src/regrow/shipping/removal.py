"""Channels taken out of a graph, constants taken into biases, dead branches cut; a table of what went and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from regrow.marks import count_of
from regrow.shipping.channels import Channels, folded, input_count, survey
from regrow.shipping.fold import double_bias, set_layer
from regrow.shipping.graph import ADDITIONS, LAYERS, NORMS, Graph
from regrow.text import as_text


@dataclass(frozen=True)
class Change:
    """One layer: outputs and inputs before and after, why outputs went, present weights before and after."""

    layer: str
    outputs: tuple[int, int]
    inputs: tuple[int, int]
    unread: int
    constant: int
    weights: tuple[int, int]


@dataclass(frozen=True)
class Removal:
    """What was taken out; a table when printed."""

    changes: tuple[Change, ...]
    branches: int = 0
    norms: int = 0

    @property
    def removed(self) -> int:
        """Present weights that went."""
        return sum(change.weights[0] - change.weights[1] for change in self.changes)

    def __str__(self) -> str:
        """One row per layer that changed, and a last line."""
        from rich import box
        from rich.table import Table

        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for head in ("layer", "inputs", "outputs", "never read", "constant", "present weights"):
            shown.add_column(head, justify="left" if head == "layer" else "right", no_wrap=True)
        for c in self.changes:
            if c.outputs[0] != c.outputs[1] or c.inputs[0] != c.inputs[1]:
                sizes = [f"{before:,} -> {after:,}" for before, after in (c.inputs, c.outputs, c.weights)]
                shown.add_row(c.layer, *sizes[:2], str(c.unread), str(c.constant), sizes[2])
        outputs = sum(change.outputs[0] - change.outputs[1] for change in self.changes)
        last = (
            f"{outputs:,} channels and {self.removed:,} present weights removed, {self.norms} batch norms folded, "
            f"{self.branches} dead branches cut"
        )
        return f"{as_text(shown)}\n{last}" if shown.row_count else last


def remove_channels(graph: Graph) -> Removal:
    """Take out what :func:`survey` says may go; ``graph`` is changed in place and computes the same."""
    before = {str(node.target): _weights(graph, node) for node in graph if isinstance(graph.of(node), LAYERS)}
    branches = _cut_branches(graph)
    found = survey(graph)
    changes = []
    for node, step in found.steps.items():
        module = graph.of(node)
        if isinstance(module, LAYERS) and step.known:
            changes.append(_shrink_layer(graph, node, found, before[str(node.target)]))
        elif isinstance(module, NORMS) and step.known:
            _shrink_norm(module, found.stays[node])
    graph.shapes.clear()
    graph.clean()
    return Removal(tuple(changes), branches)


def _weights(graph: Graph, node: fx.Node) -> int:
    mask, layer = graph.masks.get(str(node.target)), graph.of(node)
    assert isinstance(layer, LAYERS)
    return count_of(mask) if mask is not None else layer.weight.numel()


def _shrink_layer(graph: Graph, node: fx.Node, found: Channels, before: int) -> Change:
    layer: Any = graph.of(node)
    source, name = found.steps[node].sources[0], str(node.target)
    outputs = found.stays[node]
    inputs = found.stays.get(source, torch.ones(input_count(layer), dtype=torch.bool))
    sizes = (len(outputs), int(outputs.sum())), (len(inputs), int(inputs.sum()))
    bias = double_bias(layer)[outputs]
    if source in found.constant:
        bias = bias + folded(layer, torch.where(inputs, 0.0, found.constant[source]).nan_to_num(), outputs)
    keeps_bias = layer.bias is not None or bool((bias != 0).any())
    rows, columns = _slice(outputs), _slice(inputs) if getattr(layer, "groups", 1) == 1 else slice(None)
    set_layer(layer, layer.weight[rows][:, columns], bias if keeps_bias else None)
    if name in graph.masks:
        graph.masks[name] = graph.masks[name][rows][:, columns]
    _resize(layer, *(after for _, after in sizes))
    constant = ~found.constant[node][~outputs].isnan()
    return Change(name, *sizes, int((~constant).sum()), int(constant.sum()), (before, _weights(graph, node)))


def _slice(stays: Tensor) -> Tensor | slice:
    """What indexes the marked ones; a view where all are."""
    return slice(None) if bool(stays.all()) else stays


def _resize(layer: Any, outputs: int, inputs: int) -> None:
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = outputs, inputs
        return
    if layer.groups > 1:
        layer.groups = inputs // layer.weight.shape[1]
    layer.out_channels, layer.in_channels = outputs, inputs


def _shrink_norm(norm: _BatchNorm, stays: Tensor) -> None:
    for name in ("weight", "bias"):
        if getattr(norm, name) is not None:
            setattr(norm, name, nn.Parameter(getattr(norm, name)[stays], requires_grad=False))
    for name in ("running_mean", "running_var"):
        setattr(norm, name, getattr(norm, name)[stays])
    norm.num_features = int(stays.sum())


def _cut_branches(graph: Graph) -> int:
    """Sums of which one side is zero everywhere are the other side."""
    if not any(node.target in ADDITIONS for node in graph):
        return 0
    found = survey(graph)
    cut = 0
    for node in graph:
        if found.steps[node].kind != "join" or node.target not in ADDITIONS:
            continue
        first, second = node.args  # as they are now: a sum cut before may have been one of them
        for dead, alive in ((first, second), (second, first)):
            assert isinstance(dead, fx.Node)
            assert isinstance(alive, fx.Node)
            same = graph.shapes.get(dead.name) == graph.shapes.get(alive.name) is not None
            if same and bool((found.constant[dead] == 0).all()):
                graph.remove(node, alive)
                cut += 1
                break
    graph.clean()
    return cut
