"""From a trained network and its masks to one that only answers: no optimizer, hooks or handle.

traced    dropout and identities gone, batch norm folded, channels removed, ReLU inside the layer before; sparse layers on native kernels
otherwise where a model's Python cannot be traced, module by module: sparse layers on native kernels, everything else as it is
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from regrow import native
from regrow.errors import ConfigurationError, StateError
from regrow.execution.modules.chwn import use_chwn
from regrow.marks import count_of
from regrow.shipping.fold import fold_norms
from regrow.shipping.graph import Graph, observed, plain_copy, trace
from regrow.shipping.layer import LAYERS, FrozenLayer
from regrow.shipping.program import Engine
from regrow.shipping.removal import Removal, remove_channels

DENSEST = 0.4
"""Layers with more of their weights than this compute dense."""
_CLOSE = 1e-4


class Frozen(nn.Module):
    """A network for inference; call it like the trained one.

    Attributes:
        removal: what was taken out, a table when printed; None where the network was not traced.
        untraced: why it was not traced; None where it was.
    """

    def __init__(self, program: nn.Module, graph: Graph | None, removal: Removal | None, untraced: str | None) -> None:
        super().__init__()
        self.program = program
        self.removal, self.untraced = removal, untraced
        self._graph = graph
        self.engine = Engine(program) if isinstance(program, fx.GraphModule) and native.available() else None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The trained network's answer in evaluation mode, within rounding."""
        if self.engine is not None and len(args) == 1 and not kwargs and not torch.compiler.is_compiling():
            answer = self.engine.answer(args[0])
            if answer is not None:
                return answer
        return self.program(*args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> Frozen:
        if self.engine is not None:
            self.engine.forget()
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        if self.engine is not None:
            self.engine.forget()

    def dense(self) -> nn.Module:
        """The same network, channels removed, of ordinary dense modules: needs regrow no more."""
        if self._graph is None:
            raise StateError(f"this network could not be traced, so it has no compact form: {self.untraced}")
        return copy.deepcopy(self._graph.module)

    def train(self, mode: bool = True) -> Frozen:
        """Stay in evaluation mode: what training needs is gone."""
        return super().train(False)


@torch.no_grad()
def freeze(model: nn.Module, masks: Mapping[str, Tensor], example: Tensor | None = None) -> Frozen:
    """A network for inference from a trained one.

    Args:
        model: the trained network; it is left as it is.
        masks: of its sparse weights, by parameter name.
        example: one input (a batch of one sample), by which shapes are known, so that more can be folded, and the result is checked.
    """
    copied = plain_copy(model)
    _apply(copied, masks)
    return freeze_in_place(copied, masks, example)


@torch.no_grad()
def freeze_in_place(
    model: nn.Module, masks: Mapping[str, Tensor], example: Tensor | None = None, check: bool = True
) -> Frozen:
    """As :func:`freeze`, of a network in evaluation mode that nobody else needs, its missing weights zero already.

    Without ``check`` the example only tells shapes.
    """
    wanted = None if example is None or not check else model(example)
    graph, untraced = _traced(model, masks, example, wanted)
    if graph is None:
        return Frozen(_module_wise(model, masks), None, None, untraced).eval()
    norms = fold_norms(graph)
    graph.clean()
    removal = replace(remove_channels(graph), norms=norms)
    frozen = Frozen(_lowered(graph), graph, removal, None).eval()
    if wanted is not None and not _same(wanted, frozen(example)):
        raise StateError("the frozen network gives other answers than the trained one on the example: please report it")
    return frozen


def _apply(model: nn.Module, masks: Mapping[str, Tensor]) -> None:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, mask in masks.items():
        if name not in parameters or parameters[name].shape != mask.shape:
            raise ConfigurationError(
                f"there is a mask for {name} of {tuple(mask.shape)}, which the model does not have"
            )
        parameters[name].masked_fill_(~mask.to(parameters[name].device), 0)


def _traced(
    model: nn.Module, masks: Mapping[str, Tensor], example: Tensor | None, wanted: Any
) -> tuple[Graph | None, str | None]:
    try:
        graph = trace(model, masks, example)
    except Exception as error:  # torch.fx lets through whatever the model's own Python raises on a proxy
        return None, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if wanted is not None and not _same(wanted, graph.answer):
        return None, "its traced form gives other answers: its Python does what torch.fx does not see"
    return graph, None


def _lowered(graph: Graph) -> nn.Module:
    """The graph with sparse layers on native kernels and ReLUs inside them; dense layers are shared."""
    program = fx.GraphModule(graph.module, copy.deepcopy(graph.module.graph))
    for node in list(program.graph.nodes):
        name = str(node.target)
        layer = program.get_submodule(name) if node.op == "call_module" else None
        if not _is_sparse(layer, graph.masks.get(name)):
            if layer is not None and not isinstance(layer, LAYERS):
                program.set_submodule(name, copy.deepcopy(layer))  # its class will keep the CHWN layout
            continue
        relu = None
        if len(node.users) == 1:
            (user,) = node.users
            relu = (
                user if user.op == "call_module" and type(program.get_submodule(str(user.target))) is nn.ReLU else None
            )
        program.set_submodule(name, FrozenLayer(layer, graph.masks[name], relu is not None))  # type: ignore[arg-type]
        if relu is not None:
            relu.replace_all_uses_with(node)
            program.graph.erase_node(relu)
    program.graph.eliminate_dead_code()
    program.delete_all_unused_submodules()
    program.recompile()
    use_chwn(program)
    return program


def _module_wise(plain: nn.Module, masks: Mapping[str, Tensor]) -> nn.Module:
    for name, module in list(plain.named_modules()):
        mask = masks.get(f"{name}.weight")
        if _is_sparse(module, mask) and type(module) in LAYERS:
            plain.set_submodule(name, FrozenLayer(module, mask))  # type: ignore[arg-type]
    return plain


def _is_sparse(layer: nn.Module | None, mask: Tensor | None) -> bool:
    if mask is None or not isinstance(layer, LAYERS) or observed(layer) or not native.available():
        return False
    fits = layer.weight.is_cpu and layer.weight.dtype in native.SUFFIX and 0 < layer.weight.numel() < 2**31
    zeros = getattr(layer, "padding_mode", "zeros") == "zeros"
    return fits and zeros and count_of(mask) <= DENSEST * mask.numel()


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.shape != b.shape:
        return False
    scale = float(a.abs().max()) if a.numel() else 0.0
    return bool(torch.allclose(a, b, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True))
