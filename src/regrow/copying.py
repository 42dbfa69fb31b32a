"""Deep copies: model, optimizer and handle in any order and any container, the copies belonging to each other.

``copy.deepcopy`` copies parts in the order it meets them, and a module may be half built when its optimizer is reached. So the
optimizer's copy gets its handle at once, and the handle looks for its copied model when it is first needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.optim import Optimizer

from regrow.errors import StateError
from regrow.scope import unwrap
from regrow.state import LoadWatcher

if TYPE_CHECKING:
    from regrow.handle import Handle


def copy_handle(handle: Handle, memo: dict[Any, Any]) -> Handle:
    """``copy.deepcopy(handle)``: brings its optimizer and its model along."""
    copy.deepcopy(handle.optimizer, memo)
    copy.deepcopy(handle.model, memo)
    memo[id(handle)] = memo[_key(handle)]
    return memo[id(handle)]


def follow_optimizer(handle: Handle, optimizer: Optimizer, memo: dict[Any, Any]) -> None:
    """Give a copied optimizer its own handle, in the state of the original's now."""
    layers = [replace(layer, parameter=copy.deepcopy(layer.parameter, memo)) for layer in handle.network.layers]
    # Where the model was copied first, its weights are dense as yet.
    held = {sparse.name: sparse.support for sparse in handle.parameters if sparse.is_compact}
    vectors = {layer.parameter_name for layer in layers if layer.parameter.shape != layer.shape}
    twin = type(handle)(
        _finder(handle, memo),
        optimizer,
        layers,
        handle.decisions,
        handle.settings,
        handle.network.ranks,
        {name: support for name, support in held.items() if name in vectors},
    )
    twin.network.costs, twin.network.calibration = list(handle.network.costs), handle.network.calibration
    if handle.network.prices is not None:
        twin.network.prices = type(handle.network.prices)(twin.network)
    twin.load_state_dict(handle.state_dict())
    twin.inherited_execution, twin.switch.native_step = handle.switch.state(), handle.switch.native_step
    memo[_key(handle)] = twin


def adopt(handle: Handle, modules: list[nn.Module]) -> None:
    """Let a handle watch its model, whose layers' modules these are; a copy goes on to compute as the original did."""
    network = handle.network
    network.layers[:] = [replace(layer, module=module) for layer, module in zip(network.layers, modules, strict=True)]
    watcher = LoadWatcher(handle)
    # As a dictionary: an ordered set, so that nothing depends on where objects lie in memory.
    handle.hooks += [module.register_load_state_dict_post_hook(watcher) for module in dict.fromkeys(modules)]
    handle.trained.watch(handle.model)
    if network.prices is not None:
        network.prices.listen(handle.model)
    if handle.inherited_execution is not None:
        handle.execute(handle.inherited_execution["execution"], handle.switch.native_step)
        handle.switch.restore(handle.inherited_execution)
        handle.switch.follow(handle.window.is_open)


def mask_copy(handle: Handle, copied: nn.Module) -> nn.Module:
    """Mask a copy of the model in place."""
    parameters = dict(unwrap(copied).named_parameters())
    # Averages wrap the model once or more ("module.", "module.module."); the shortest prefix that fits is the wrapper's.
    fitting = [
        name.removesuffix(handle.parameters[0].name) for name in parameters if name.endswith(handle.parameters[0].name)
    ]
    prefix = min(fitting, key=len, default="")
    for sparse in handle.parameters:
        twin = parameters.get(prefix + sparse.name)
        if twin is None or twin.shape != sparse.shape:
            raise StateError(
                f"the copy has no parameter {sparse.name} of shape {tuple(sparse.shape)}: pass a copy of the same model"
            )
    for sparse in handle.parameters:
        twin = parameters[prefix + sparse.name]
        twin.masked_fill_(~sparse.mask.to(twin.device), 0)
    return copied


def _finder(handle: Handle, memo: dict[Any, Any]) -> Callable[[], tuple[nn.Module, list[nn.Module]]]:
    def find() -> tuple[nn.Module, list[nn.Module]]:
        originals = [handle.model, *(layer.module for layer in handle.network.layers)]
        parts = [memo[id(part)] for part in originals if id(part) in memo]
        if len(parts) < len(originals):
            raise StateError(
                "this optimizer was copied without its model, which would go on untrained: "
                "copy them together, copy.deepcopy((model, optimizer, handle))"
            )
        return parts[0], parts[1:]

    return find


def _key(handle: Handle) -> tuple[str, int]:
    return ("regrow handle", id(handle))
