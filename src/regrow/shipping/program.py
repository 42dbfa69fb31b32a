"""A frozen network as one native program: all its steps in one call, memory planned once (`csrc/program.h`).

Layers, batch norms, ReLUs, pooling, sums and flattening are known; a network with anything else has no program and runs node by node.
A program is planned for input maps of one size, twice: lanes are pixels of one sample (small batches, large maps) or samples.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor, fx, nn

from regrow import native
from regrow.execution.kernels.pattern import Geometry
from regrow.execution.modules.geometry import geometry_of
from regrow.shipping.fold import scale_shift
from regrow.shipping.graph import ADDITIONS, NORMS, observed
from regrow.shipping.layer import FEW, FrozenLayer
from regrow.shipping.planned import (
    AVERAGE_POOL,
    CHANNELS,
    LAYER,
    MAX_POOL,
    Planned,
    Size,
    Step,
    fits,
    samples_pay,
)

_MOSTLY_DENSE = 0.5
_KEPT = 8


class Unknown(Exception):
    """A network, or an input, for which there is no program."""


class Engine:
    """The native programs of a network, one for each size of input and kind of batch, made when first needed."""

    def __init__(self, network: fx.GraphModule) -> None:
        self._network = network
        self._lock = threading.Lock()
        self._programs: dict[tuple[Any, ...], Planned | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Programs belong to this process."""
        return {"_network": self._network}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Programs are made again."""
        Engine.__init__(self, state["_network"])

    def forget(self) -> None:
        """Weights have changed."""
        with self._lock:
            self._programs.clear()

    def answer(self, x: Any) -> Tensor | None:
        """The network's answer; None where it has no program for such an input."""
        if type(x) is not Tensor or x.dim() not in (2, 4) or not native.reads(x) or x.requires_grad or not x.shape[0]:
            return None
        key = (x.shape[1:], x.dtype, x.shape[0] >= FEW)
        program = self._programs.get(key) or self._planned(key)
        return None if program is None else program.answer(x)

    def _planned(self, key: tuple[Any, ...]) -> Planned | None:
        with self._lock:
            if key not in self._programs:
                if len(self._programs) >= _KEPT:
                    del self._programs[next(iter(self._programs))]
                try:
                    self._programs[key] = self._plan(*key)
                except Unknown:
                    self._programs[key] = None
            return self._programs[key]

    def _plan(self, shape: torch.Size, dtype: torch.dtype, many: bool) -> Planned:
        made = _Lowering(self._network, (shape[0], *(shape[1:] or (1, 1))), len(shape) == 1, dtype)
        if not fits(made.sizes):
            raise Unknown
        pay = samples_pay(made.sizes, made.steps, dtype)
        found = None if pay or not many else self._programs.get((shape, dtype, False))
        return found or Planned(made.sizes, made.steps, made.flat, dtype, samples_innermost=many and pay)


class _Lowering:
    """Nodes of a network as steps, for one size of input."""

    def __init__(self, network: fx.GraphModule, size: Any, flat: bool, dtype: torch.dtype) -> None:
        self._network, self._dtype = network, dtype
        self.sizes: list[Size] = []
        self.steps: list[Step] = []
        self._tensor: dict[fx.Node, int] = {}
        self._maker: dict[int, int] = {}
        self.flat = False
        nodes = list(network.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        if len(inputs) != 1 or nodes[-1].op != "output" or not isinstance(nodes[-1].args[0], fx.Node):
            raise Unknown
        self._give(inputs[0], size)
        self._flat_input = flat
        for node in nodes[:-1]:
            if node is not inputs[0]:
                self._lower(node)
        self._end(nodes[-1].args[0])

    def _end(self, node: fx.Node) -> None:
        last = self._tensor[node]
        if not self.steps or self.steps[-1].target != last or self._dense_share() > _MOSTLY_DENSE:
            raise Unknown
        self.flat = self._is_flat(node)

    def _dense_share(self) -> float:
        """Of the multiply-adds, how many are in layers that have all their weights: torch computes these faster."""
        work = {True: 1, False: 0}
        for step in self.steps:
            if step.kind == LAYER:
                assert step.values is not None
                _, rows, cols = self.sizes[step.target]
                work[step.where is not None] += len(step.values) * rows * cols
        return work[False] / (work[False] + work[True])

    def _give(self, node: fx.Node, size: Size) -> int:
        self.sizes.append(size)
        self._tensor[node] = len(self.sizes) - 1
        return self._tensor[node]

    def _is_flat(self, node: fx.Node) -> bool:
        """Whether a node's result has features, not maps."""
        module = self._network.get_submodule(str(node.target)) if node.op == "call_module" else None
        if node.op == "placeholder":
            return self._flat_input
        if isinstance(module, nn.Flatten | nn.Linear) or (isinstance(module, FrozenLayer) and len(module.shape) == 2):
            return True
        return isinstance(node.args[0], fx.Node) and self._is_flat(node.args[0])

    def _lower(self, node: fx.Node) -> None:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or node.kwargs:
            raise Unknown
        if node.op == "call_function" and node.target in ADDITIONS and len(node.args) == 2:
            return self._add(node, source, node.args[1])
        module = self._network.get_submodule(str(node.target)) if node.op == "call_module" else None
        if module is None or observed(module) or len(node.args) != 1:
            raise Unknown
        if isinstance(module, nn.Flatten) and module.start_dim == 1 and module.end_dim == -1:
            self._tensor[node] = self._tensor[source]
        elif isinstance(module, FrozenLayer | nn.Conv2d | nn.Linear):
            self._layer(node, source, module)
        elif isinstance(module, nn.ReLU):
            self._relu(node, source)
        elif isinstance(module, NORMS) and module.running_mean is not None:
            scale, shift = (t.to(self._dtype) for t in scale_shift(module))
            self._channels(node, source, scale=scale, bias=shift)
        else:
            self._pool(node, source, module)
        return None

    def _layer(self, node: fx.Node, source: fx.Node, module: Any) -> None:
        frozen = isinstance(module, FrozenLayer)
        shape = tuple(module.shape if frozen else module.weight.shape)
        geometry = module.geometry if frozen else geometry_of(module)
        values = module.values if frozen else module.weight.detach().reshape(-1)
        size = self.sizes[self._tensor[source]]
        zeros = getattr(module, "padding_mode", "zeros") == "zeros"
        if values.dtype != self._dtype or not zeros or len(shape) not in (2, 4):
            raise Unknown
        if len(shape) == 2:  # a linear layer is a convolution with one window: the whole map
            if not self._is_flat(source):
                raise Unknown
            if shape[1] != size[0] * size[1] * size[2]:
                raise Unknown
            geometry, shape = Geometry(kernel=size[1:]), (shape[0], *size)
        elif self._is_flat(source):
            raise Unknown
        if shape[1] * geometry.groups != size[0]:
            raise Unknown
        target = self._give(node, (shape[0], *geometry.output_size(size[1], size[2])))
        step = Step(LAYER, self._tensor[source], target, geometry, relu=frozen and module.relu)
        step.where, step.values, step.bias = (module.where if frozen else None), values, module.bias
        self._append(step)

    def _append(self, step: Step) -> None:
        self.steps.append(step)
        self._maker[step.target] = len(self.steps) - 1

    def _free_maker(self, node: Any) -> Step | None:
        """The step that makes a tensor nobody else reads, if something can still be added to it."""
        place = self._maker.get(self._tensor[node], -1)
        if (
            place < 0
            or len(node.users) != 1
            or self.steps[place].relu
            or self.steps[place].kind not in (LAYER, CHANNELS)
        ):
            return None
        return self.steps[place]

    def _add(self, node: fx.Node, a: fx.Node, b: Any) -> None:
        if not isinstance(b, fx.Node) or a is b or self.sizes[self._tensor[a]] != self.sizes[self._tensor[b]]:
            raise Unknown
        late, early = (a, b) if self._maker.get(self._tensor[a], -1) > self._maker.get(self._tensor[b], -1) else (b, a)
        step = self._free_maker(late)
        if step is not None and step.other < 0 and self._tensor[early] != step.target:
            step.other = self._tensor[early]
            self._tensor[node] = step.target
        else:
            self._channels(node, a, other=self._tensor[b])

    def _relu(self, node: fx.Node, source: fx.Node) -> None:
        step = self._free_maker(source)
        if step is None:
            return self._channels(node, source, relu=True)
        step.relu = True
        self._tensor[node] = step.target
        return None

    def _channels(self, node: fx.Node, source: fx.Node, **given: Any) -> None:
        before = self._tensor[source]
        self._append(Step(CHANNELS, before, self._give(node, self.sizes[before]), Geometry(), **given))

    def _pool(self, node: fx.Node, source: fx.Node, module: Any) -> None:
        channels, rows, cols = self.sizes[self._tensor[source]]
        if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)):
            kind, geometry = AVERAGE_POOL, Geometry(kernel=(rows, cols))
        elif isinstance(module, nn.MaxPool2d) and not module.return_indices:
            kind, geometry = MAX_POOL, _pool_geometry(module, _pair(module.dilation))
        elif isinstance(module, nn.AvgPool2d) and module.divisor_override is None and _pair(module.padding) == (0, 0):
            kind, geometry = AVERAGE_POOL, _pool_geometry(module, (1, 1))
        else:
            raise Unknown
        if self._is_flat(source) or getattr(module, "ceil_mode", False):
            raise Unknown
        target = self._give(node, (channels, *geometry.output_size(rows, cols)))
        self._append(Step(kind, self._tensor[source], target, geometry))


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _pool_geometry(pool: Any, dilation: tuple[int, int]) -> Geometry:
    kernel = _pair(pool.kernel_size)
    return Geometry(kernel, _pair(pool.stride or kernel), _pair(pool.padding) * 2, dilation)
