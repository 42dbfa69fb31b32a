"""How a handle rides on an optimizer: step hooks, copies, and optimizers that must not step sparse weights."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch.optim import LBFGS, Optimizer, SparseAdam
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

from regrow.copying import follow_optimizer
from regrow.errors import StateError, UnsupportedError

if TYPE_CHECKING:
    from torch import nn

    from regrow.handle import Handle
    from regrow.parameter import SparseParameter
    from regrow.scope import Layer

_ATTRIBUTE = "_regrow_handle"
_MARK = "_regrow_pickled"
_HIDDEN = ("__deepcopy__", "__getstate__")
_owners = WeakTensorKeyDictionary()
_harmless: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()


class Pickled:
    """What a pickled optimizer carries of its handle: the knowledge that there was one. Reading it imports this module."""


def supported(optimizer: Any) -> Optimizer:
    """The torch optimizer behind wrappers of Lightning or Accelerate; an error for those that cannot work."""
    optimizer = _unwrap(optimizer)
    if isinstance(optimizer, LBFGS):
        raise UnsupportedError(
            "LBFGS evaluates unmasked weights inside one step: use SGD, Adam or another first-order optimizer"
        )
    if isinstance(optimizer, SparseAdam):
        raise UnsupportedError("SparseAdam takes sparse gradients of embeddings: use Adam or AdamW for sparse weights")
    if isinstance(optimizer, (list, tuple)):
        raise UnsupportedError(
            "sparsify takes one optimizer: where a model has several, sparsify each part with its own, e.g. "
            "regrow.sparsify(model.encoder, encoder_optimizer, ...)"
        )
    if not isinstance(optimizer, Optimizer):
        raise UnsupportedError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(base := getattr(optimizer, "base_optimizer", None), Optimizer):
        raise UnsupportedError(
            f"{type(optimizer).__name__} moves weights there and back around the step of its base_optimizer "
            f"({type(base).__name__}): pass that one, sparsify(model, optimizer.base_optimizer, ...), and step as before"
        )
    if handle_of(optimizer) is not None:
        raise StateError("this optimizer is sparsified already: call handle.detach() first, or keep using that handle")
    return optimizer


def attach(handle: Handle, optimizer: Optimizer) -> list[Any]:
    """Hook a handle into an optimizer's step and return the removable hooks."""
    setattr(optimizer, _ATTRIBUTE, handle)
    optimizer.__dict__.pop(_MARK, None)
    _harmless.clear()
    for sparse in handle.parameters:
        _owners[sparse.parameter] = weakref.ref(handle)
    # copy.deepcopy consults the instance: optimizers drop their hooks when copied, and would train dense in silence.
    optimizer.__deepcopy__ = lambda memo: _copy(optimizer, handle, memo)  # type: ignore[attr-defined]
    optimizer.__getstate__ = lambda: _marked(optimizer)  # type: ignore[method-assign]  # pickle consults it too
    # The step's own hook is the first: acts_last and act_last look for it there.
    return [
        optimizer.register_step_pre_hook(lambda _, args, kwargs: _before(handle, args, kwargs)),
        optimizer.register_step_post_hook(lambda *_: handle.after_step()),
        optimizer.register_load_state_dict_post_hook(lambda _: handle.distrust()),
    ]


def release(handle: Handle, optimizer: Optimizer) -> None:
    """Undo :func:`attach`; the hooks themselves are removed by their owner."""
    for name in (_ATTRIBUTE, *_HIDDEN):
        optimizer.__dict__.pop(name, None)
    for sparse in handle.parameters:
        _owners.pop(sparse.parameter, None)
    handle.saved_nonzeros = {}  # nobody asks any more whose weights these are


def acts_last(optimizer: Optimizer, hooks: list[Any]) -> bool:
    """Whether no other hook (clipping, noise) comes between these and the update."""
    return next(reversed(optimizer._optimizer_step_pre_hooks), None) == hooks[0].id


def act_last(optimizer: Optimizer, hooks: list[Any]) -> None:
    """Come after hooks that were registered since; between steps only."""
    mine, every = hooks[0].id, optimizer._optimizer_step_pre_hooks
    if mine in every:
        every[mine] = every.pop(mine)


def handle_of(optimizer: Any) -> Handle | None:
    """The handle that rides on an optimizer, also on a deep copy made together with its model."""
    return getattr(_unwrap(optimizer), "__dict__", {}).get(_ATTRIBUTE)


def refuse_owned(layers: Iterable[Layer]) -> None:
    """An error for parameters that a handle keeps sparse already."""
    for layer in layers:
        owner = _owners.get(layer.parameter)
        if owner is not None and owner() is not None:
            raise StateError(
                f"{layer.parameter_name} is sparsified already, with another optimizer: call handle.detach() on that handle first"
            )


def in_place(model: nn.Module, parameters: Sequence[SparseParameter]) -> bool:
    """Whether all sparse parameters are where they were in the model: a few look-ups, for every step."""
    for sparse in parameters:
        *path, own = sparse.name.split(".")
        module: nn.Module | None = model
        for name in path:
            module = None if module is None else module._modules.get(name)
        if module is None or module._parameters.get(own) is not sparse.parameter:
            return False
    return True


def refuse_replaced(model: nn.Module, parameters: Sequence[SparseParameter]) -> None:
    """An error for sparse parameters that are no longer the model's."""
    if in_place(model, parameters):
        return
    owned = {id(parameter) for parameter in model.parameters()}
    for sparse in parameters:
        if id(sparse.parameter) not in owned:
            raise StateError(
                f"the model has no longer the {sparse.name} that was sparsified (layer replaced, weight norm, load_state_dict with "
                "assign=True?): change the model before sparsify, load without assign, or sparsify again with an optimizer of the new "
                "parameters and start='zeros' (masks kept) or 'magnitude'"
            )


def _unwrap(optimizer: Any) -> Any:
    while True:
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if not isinstance(inner, Optimizer):
            return optimizer
        optimizer = inner


def _before(
    handle: Handle, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Act before the update; where a closure computes the gradients, act right after it."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    handle.check()
    if closure is None:
        handle.before_step()
        return None

    evaluated = False

    def wrapped() -> Any:
        nonlocal evaluated
        if evaluated:
            raise UnsupportedError(
                f"{type(handle.optimizer).__name__} evaluates its closure more than once in a step, between which weights are not "
                "masked: use SGD, Adam or another first-order optimizer"
            )
        loss, evaluated = closure(), True
        if handle_of(handle.optimizer) is handle:  # not detached meanwhile
            handle.before_step()
        return loss

    if "closure" in kwargs:
        return args, {**kwargs, "closure": wrapped}
    return (args[0], wrapped, *args[2:]), kwargs


def _copy(optimizer: Optimizer, handle: Handle, memo: dict[int, Any]) -> Optimizer:
    twin = _plain_copy(optimizer, memo)
    follow_optimizer(handle, twin, memo)
    return twin


def _plain_copy(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    hidden = {name: optimizer.__dict__.pop(name) for name in _HIDDEN}
    try:
        return copy.deepcopy(optimizer, memo)
    finally:
        optimizer.__dict__.update(hidden)


def _marked(optimizer: Optimizer) -> Any:
    """The optimizer's own state to pickle, without its handle and with a mark in its place."""
    state = type(optimizer).__getstate__(optimizer)
    if not isinstance(state, dict):
        return state
    return {**{key: value for key, value in state.items() if key not in (_ATTRIBUTE, *_HIDDEN)}, _MARK: Pickled()}


def _refuse_stranger(optimizer: Optimizer, *_: Any) -> None:
    """Optimizers that would train sparse weights without their handle: masks fixed, counters behind, or dense altogether."""
    if _ATTRIBUTE in optimizer.__dict__:
        return
    if _owners:
        _refuse_other(optimizer)
    if _MARK in optimizer.__dict__:
        raise StateError(
            f"this {type(optimizer).__name__} was sparsified when it was pickled; masks and hooks do not travel in a pickle, so it "
            "would train dense: save the state_dict() of model, optimizer and handle, and load them after regrow.sparsify with "
            "the same arguments"
        )


def _refuse_other(optimizer: Optimizer) -> None:
    """An error for another optimizer on weights that a living handle keeps sparse."""
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    if _harmless.get(optimizer) == count:
        return
    base = getattr(optimizer, "base_optimizer", None)  # SAM's step makes this one's, see `supported`
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            owner: Callable[[], Handle | None] | None = _owners.get(parameter)
            handle = None if owner is None else owner()
            if handle is not None and handle is not handle_of(base):
                raise StateError(
                    f"{type(optimizer).__name__} steps weights that were sparsified with another optimizer object: "
                    "step that one, or handle.detach() and sparsify again with the new optimizer and start='zeros', which keeps the masks"
                )
    _harmless[optimizer] = count


register_optimizer_step_pre_hook(_refuse_stranger)
