"""What each node of a graph does to channels, as far as it is known.

layer      new channels from old ones: convolutions, linear layers on (N, features)
channels   each channel by itself: norms, elementwise functions, pooling, means over pixels, flatten (`repeat` features per channel)
join       several tensors, channel by channel: sums and products
stack      several tensors, one behind the other: concatenation
opaque     anything else, with unknown channels: whatever it reads must stay as it is
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from regrow.shipping.fold import scale_shift
from regrow.shipping.graph import ADDITIONS, LAYERS, NORMS, Graph, flattens, is_flat, observed

_ELEMENTWISE = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.SiLU,
    nn.GELU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.Hardtanh,
    nn.Softplus,
    nn.Mish,
)
_ELEMENTWISE_FUNCTIONS = (
    torch.sigmoid,
    torch.tanh,
    functional.silu,
    functional.gelu,
    functional.relu6,
    functional.hardswish,
)
_POOLS = (
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.AvgPool1d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool1d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
)
PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")


@dataclass(frozen=True)
class Step:
    """What a node does; ``width`` channels come out, ``sources`` are the nodes it reads."""

    node: fx.Node
    kind: str
    width: int = 0
    sources: tuple[fx.Node, ...] = ()
    repeat: int = 1

    @property
    def known(self) -> bool:
        """Whether its channels are known."""
        return self.kind != "opaque"


def steps_of(graph: Graph) -> dict[fx.Node, Step]:
    """One step per node, in order."""
    steps: dict[fx.Node, Step] = {}
    for node in graph:
        steps[node] = _step(graph, node, steps)
    return steps


def apply(step: Step, graph: Graph, given: list[Tensor]) -> Tensor:
    """What a step of the kinds channels, join and stack makes of constant channels; NaN are those that are not constant."""
    module, (first, *rest) = graph.of(step.node), given
    if step.kind == "stack":
        return torch.cat(given)
    if step.kind == "join":
        product = step.node.target in PRODUCTS
        combined = first * rest[0] if product else first + rest[0]
        # Nothing times zero is anything but zero, whatever the other factor is.
        return combined.masked_fill((first == 0) | (rest[0] == 0), 0.0) if product else combined
    if isinstance(module, NORMS):
        scale, shift = scale_shift(module)
        return first * scale + shift
    if isinstance(module, _ELEMENTWISE):
        return module(first)
    if step.node.target in _ELEMENTWISE_FUNCTIONS:
        return step.node.target(first, *step.node.args[1:], **step.node.kwargs)
    if isinstance(module, nn.AvgPool1d | nn.AvgPool2d) and not _averages_inside(module):
        return first.masked_fill(first != 0, float("nan"))
    return first.repeat_interleave(step.repeat)


def _averages_inside(pool: nn.AvgPool1d | nn.AvgPool2d) -> bool:
    """Whether each average is one over pixels of the map alone, so that a constant stays what it is."""
    padded = any(size > 0 for size in (pool.padding if isinstance(pool.padding, tuple) else (pool.padding,)))
    return not (padded and pool.count_include_pad) and getattr(pool, "divisor_override", None) is None


def _step(graph: Graph, node: fx.Node, steps: dict[fx.Node, Step]) -> Step:
    opaque = Step(node, "opaque", sources=tuple(node.all_input_nodes))
    module = graph.of(node)
    if module is not None and observed(module):
        return opaque
    if isinstance(module, LAYERS):
        return _layer(graph, node, module) or opaque
    sources = tuple(node.all_input_nodes)
    if not sources or not all(steps[source].known for source in sources):
        return opaque
    width = steps[sources[0]].width
    if flattens(node, graph):
        repeat = _pixels(graph, node, width)
        return Step(node, "channels", width * repeat, sources, repeat) if repeat else opaque
    if len(sources) == 1 and _by_channel(node, module):
        return Step(node, "channels", width, sources)
    if node.target in (*ADDITIONS, *PRODUCTS) and _joins(graph, node, sources, [steps[s].width for s in sources]):
        return Step(node, "join", width, (node.args[0], node.args[1]))  # type: ignore[arg-type]
    if node.target in (torch.cat, torch.concat) and _stacks(node):
        parts = tuple(node.args[0])  # type: ignore[arg-type]
        return Step(node, "stack", sum(steps[part].width for part in parts), parts)
    return opaque


def _layer(graph: Graph, node: fx.Node, layer: Any) -> Step | None:
    source = node.args[0]
    if not isinstance(source, fx.Node) or (isinstance(layer, nn.Linear) and not is_flat(source, graph)):
        return None
    if isinstance(layer, nn.Linear):
        return Step(node, "layer", layer.out_features, (source,))
    return Step(node, "layer", layer.out_channels, (source,)) if layer.padding_mode == "zeros" else None


def _by_channel(node: fx.Node, module: nn.Module | None) -> bool:
    if isinstance(module, (*_ELEMENTWISE, *_POOLS, *NORMS)):
        return not (isinstance(module, NORMS) and module.running_mean is None) and not getattr(
            module, "return_indices", False
        )
    if node.target in _ELEMENTWISE_FUNCTIONS:
        return True
    dims: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if node.target != "mean" and node.target is not torch.mean:
        return False
    return isinstance(dims, list | tuple) and sorted(dims) in ([2, 3], [-2, -1])


def _joins(graph: Graph, node: fx.Node, sources: tuple[fx.Node, ...], widths: list[int]) -> bool:
    """Two tensors of as many channels and dimensions, and nothing else."""
    shapes = [graph.shapes.get(source.name) for source in sources]
    if (
        len(node.args) != 2
        or node.kwargs
        or len(set(widths)) != 1
        or not all(isinstance(a, fx.Node) for a in node.args)
    ):
        return False
    if None in shapes:
        return len({is_flat(source, graph) for source in sources}) == 1
    return len({len(shape) for shape in shapes if shape}) == 1


def _stacks(node: fx.Node) -> bool:
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    return dim == 1 and isinstance(node.args[0], list | tuple)


def _pixels(graph: Graph, node: fx.Node, width: int) -> int:
    """Features that a flatten makes of each channel; 0 where that is not known."""
    if node.name in graph.shapes:
        return graph.shapes[node.name][1] // width
    readers = [graph.of(user) for user in node.users]
    sizes = {reader.in_features for reader in readers if isinstance(reader, nn.Linear)}
    (size,) = (
        sizes if len(sizes) == 1 and len(readers) == len([r for r in readers if isinstance(r, nn.Linear)]) else (0,)
    )
    return size // width if size % width == 0 else 0
