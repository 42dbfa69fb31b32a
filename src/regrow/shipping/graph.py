"""A trained network as a graph of ordinary modules, in evaluation mode, without handle, hooks or what only training needs.

torch.fx traces; functions whose meaning matters to later steps (layers, norms, ReLU, flatten) become modules, each used once.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from regrow.errors import StateError
from regrow.execution.modules.chwn import restore
from regrow.execution.modules.layers import execution_of
from regrow.scope import unwrap
from regrow.state import LoadWatcher

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
ADDITIONS = (operator.add, operator.iadd, torch.add, "add", "add_")
_RELUS = (functional.relu, torch.relu, torch.relu_, "relu", "relu_")
_FLATTENS = (torch.flatten, "flatten")
_DROPOUTS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)


@dataclass
class Graph:
    """A traced network and the masks of its layers by the name of their module.

    ``shapes`` of every node's result, and the ``answer`` to one example, are there if there was one.
    """

    module: fx.GraphModule
    masks: dict[str, Tensor]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    answer: Any = None

    def __iter__(self) -> Iterator[fx.Node]:
        return iter(list(self.module.graph.nodes))

    def of(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.module.get_submodule(str(node.target)) if node.op == "call_module" else None

    def remove(self, node: fx.Node, instead: fx.Node) -> None:
        """Let everybody who reads a node read another."""
        node.replace_all_uses_with(instead)
        self.module.graph.erase_node(node)

    def clean(self) -> None:
        """Forget nodes that nobody reads, and modules that nobody calls."""
        self.module.graph.eliminate_dead_code()
        self.module.delete_all_unused_submodules()
        self.module.recompile()


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy that computes as an ordinary model in evaluation mode and belongs to no handle."""
    copied = copy.deepcopy(unwrap(model))
    for module in copied.modules():
        execution = execution_of(module)
        if execution is not None:
            execution.detach()
        hooks = module._load_state_dict_post_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, LoadWatcher)]:
            del hooks[key]
    restore(copied)
    return copied.eval().requires_grad_(False)


def trace(model: nn.Module, masks: Mapping[str, Tensor], example: Tensor | None = None) -> Graph:
    """The graph of a plain copy; ``masks`` by parameter name.

    Raises:
        Exception: whatever torch.fx raises where a model's Python cannot be traced.
    """
    traced = fx.GraphModule(model, fx.Tracer().trace(model))
    graph = Graph(traced, {})
    _check_in_place(graph)
    owners = _own_modules(graph, masks)
    for node in graph:
        _rewrite(graph, node, masks)
    graph.masks |= {name: masks[parameter] for name, parameter in owners.items()}
    graph.clean()
    if example is not None:
        watched = _Watched(traced)
        graph.answer, graph.shapes = watched.run(example), watched.shapes
    return graph


def observed(module: nn.Module) -> bool:
    """Whether somebody's hooks take part in what a module computes, so that nothing may take its place."""
    return bool(module._forward_hooks or module._forward_pre_hooks) or "forward" in module.__dict__


def _check_in_place(graph: Graph) -> None:
    """Refuse tensors that are changed in place and read afterwards: their readers mean the changed one, the graph's edges do not."""
    place = {node: at for at, node in enumerate(graph)}
    for node in place:
        source = node.args[0] if node.args and _in_place(graph, node) else None
        if isinstance(source, fx.Node) and any(place[reader] > place[node] for reader in source.users):
            raise StateError(f"{node.name} changes the result of {source.name} in place, which is read afterwards")


def _in_place(graph: Graph, node: fx.Node) -> bool:
    module, name = graph.of(node), str(getattr(node.target, "__name__", node.target))
    if module is not None:
        return bool(getattr(module, "inplace", False))
    called = node.op in ("call_function", "call_method")
    return called and (
        bool(node.kwargs.get("inplace")) or name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    )


class _Watched(fx.Interpreter):
    """Runs a graph and remembers shapes."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        """The node's result, its shape noted."""
        result = super().run_node(n)
        if isinstance(result, Tensor):
            self.shapes[n.name] = tuple(result.shape)
        return result


def flattens(node: fx.Node, graph: Graph) -> bool:
    """Whether a node turns (N, C, ...) into (N, features)."""
    module = graph.of(node)
    return isinstance(module, nn.Flatten) and module.start_dim == 1 and module.end_dim == -1


def is_flat(node: Any, graph: Graph) -> bool:
    """Whether a node's result is certainly (N, features)."""
    if not isinstance(node, fx.Node):
        return False
    if node.name in graph.shapes:
        return len(graph.shapes[node.name]) == 2
    keeps_rank = isinstance(graph.of(node), (nn.Linear, nn.ReLU, *NORMS))
    return flattens(node, graph) or (keeps_rank and is_flat(node.args[0], graph))


def add_module(graph: Graph, near: fx.Node, module: nn.Module) -> str:
    """Give the graph a new module; returns its name."""
    name = f"{near.name}_made"
    while hasattr(graph.module, name):
        name += "_"
    graph.module.add_submodule(name, module.eval())
    return name


def _own_modules(graph: Graph, masks: Mapping[str, Tensor]) -> dict[str, str]:
    """Give every call a module of its own where a module is called more than once; returns masked parameters of modules."""
    seen: set[str] = set()
    owners = {}
    for node in graph:
        module = graph.of(node)
        if module is None:
            continue
        parameter = f"{node.target}.weight"
        if node.target in seen:
            node.target = add_module(graph, node, copy.deepcopy(module))
        seen.add(str(node.target))
        if parameter in masks and isinstance(module, LAYERS):
            owners[str(node.target)] = parameter
    return owners


def _rewrite(graph: Graph, node: fx.Node, masks: Mapping[str, Tensor]) -> None:
    """Replace one node by a module call, or by nothing, where that means the same."""
    module = graph.of(node)
    if isinstance(module, nn.Identity | _DropoutNd) and not observed(module):
        return graph.remove(node, node.args[0])  # type: ignore[arg-type]
    if node.target is torch._assert:
        return graph.module.graph.erase_node(node)
    made = _module_for(graph, node)
    if made is None or not isinstance(node.args[0], fx.Node):
        return None
    if isinstance(made, nn.Identity):
        return graph.remove(node, node.args[0])
    name = add_module(graph, node, made)
    weight = _argument(node, 1, "weight")
    if isinstance(made, LAYERS) and isinstance(weight, fx.Node) and weight.target in masks:
        graph.masks[name] = masks[str(weight.target)]
    with graph.module.graph.inserting_before(node):
        call = graph.module.graph.call_module(name, (node.args[0],))
    return graph.remove(node, call)


def _module_for(graph: Graph, node: fx.Node) -> nn.Module | None:
    """The module that does what a function call does, or None."""
    target: Any = node.target
    if node.op not in ("call_function", "call_method"):
        return None
    if target in _RELUS:
        return nn.ReLU()
    if target in _DROPOUTS and not _argument(node, 2, "training", True):
        return nn.Identity()
    if target in _FLATTENS and _argument(node, 1, "start_dim", 0) == 1 and _argument(node, 2, "end_dim", -1) == -1:
        return nn.Flatten()
    build = {functional.linear: _linear, functional.batch_norm: _norm, functional.conv2d: _conv2d}.get(target)
    return None if build is None else build(graph, node)


def _linear(graph: Graph, node: fx.Node) -> nn.Module | None:
    weight, bias = _constants(graph, node, ("weight", 1), ("bias", 2))
    if _unknown(weight, bias):
        return None
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
    return _filled(layer, weight=weight, bias=bias)


def _conv2d(graph: Graph, node: fx.Node) -> nn.Module | None:
    weight, bias = _constants(graph, node, ("weight", 1), ("bias", 2))
    given = [_argument(node, i, key, default) for i, (key, default) in enumerate(_CONV2D, start=3)]
    if _unknown(weight, bias) or any(isinstance(value, fx.Node) for value in given):
        return None
    stride, padding, dilation, groups = given
    sizes = (weight.shape[1] * groups, weight.shape[0], tuple(weight.shape[2:]))
    layer = nn.Conv2d(*sizes, stride, padding, dilation, groups, bias is not None, device="meta")
    return _filled(layer, weight=weight, bias=bias)


def _norm(graph: Graph, node: fx.Node) -> nn.Module | None:
    mean, variance, weight, bias = _constants(
        graph, node, ("running_mean", 1), ("running_var", 2), ("weight", 3), ("bias", 4)
    )
    if mean is None or _unknown(mean, variance, weight, bias) or _argument(node, 5, "training", False) is not False:
        return None
    weight = torch.ones_like(mean) if weight is None else weight
    bias = torch.zeros_like(mean) if bias is None else bias
    norm = nn.BatchNorm2d(len(mean), eps=_argument(node, 7, "eps", 1e-5), device="meta")
    norm._check_input_dim = _any_rank  # type: ignore[method-assign,assignment]
    return _filled(norm, weight=weight, bias=bias, running_mean=mean, running_var=variance)


_CONV2D = (("stride", 1), ("padding", 0), ("dilation", 1), ("groups", 1))
_UNKNOWN = torch.empty(0)


def _unknown(*tensors: Any) -> bool:
    return any(tensor is _UNKNOWN for tensor in tensors)


def _any_rank(x: Tensor) -> None:
    """The function takes maps of any rank."""


def _constants(graph: Graph, node: fx.Node, *wanted: tuple[str, int]) -> list[Any]:
    """Tensors of the model that a call names; None where it has none, `_UNKNOWN` where it is computed."""
    found = []
    for key, place in wanted:
        value = _argument(node, place, key)
        if isinstance(value, fx.Node):
            known = value.op == "get_attr"
            value = operator.attrgetter(str(value.target))(graph.module).detach() if known else _UNKNOWN
        found.append(value)
    return found


def _filled(module: nn.Module, **tensors: Tensor | None) -> nn.Module:
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        kept: Any = nn.Parameter(tensor.clone(), requires_grad=False) if name in module._parameters else tensor.clone()
        setattr(module, name, kept)
    if isinstance(module, _BatchNorm):
        module.num_batches_tracked = None
    return module.eval()


def _argument(node: fx.Node, place: int, key: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(key, default)
