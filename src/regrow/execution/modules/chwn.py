"""Keeps the CHWN layout: modules between sparse layers keep [C][H][W][N] with fast native code, reversibly.

Only modules of exactly the listed torch classes change their class; hooks, parameters, buffers and `state_dict` stay.
Everything else receives tensors with legal strides and stays correct.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from regrow.execution.modules import norm, pool, stack
from regrow.execution.modules.dropout import ChwnDropout
from regrow.execution.modules.entrance import ChwnConv2d
from regrow.execution.modules.layers import SparseConv2d
from regrow.execution.modules.norm import ChwnBatchNorm1d, ChwnBatchNorm2d
from regrow.execution.modules.pool import ChwnAdaptiveAvgPool2d, ChwnAvgPool2d, ChwnMaxPool2d

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _observed(module: nn.Module) -> bool:
    """Whether hooks watch a module, or its forward was replaced: then it must be called by itself."""
    return any(getattr(module, hooks) for hooks in _HOOKS) or "forward" in module.__dict__ or _has_any_global_hook()


def _pair(first: nn.Module, second: nn.Module, x: Tensor, fresh: bool) -> Tensor | None:
    """Batch norm then ReLU, or ReLU then max pooling, in one pass; None for other pairs.

    A ReLU in place must write to an ``x`` that others may hold: only a ``fresh`` one can go without.
    """
    if isinstance(first, ChwnBatchNorm1d | ChwnBatchNorm2d) and type(second) is nn.ReLU and norm.takes(first, x):
        return norm.batch_norm(first, x, relu=True)
    if type(first) is not nn.ReLU or (first.inplace and not fresh):
        return None
    if type(second) is ChwnMaxPool2d and pool.takes(second, x):
        return pool.max_pool(second, x, relu=True)
    return None


def _fused(modules: list[nn.Module], x: Tensor, fresh: bool) -> tuple[Tensor, int] | None:
    """The first modules in one pass, and how many they were; None if the first must be called by itself."""
    if count := stack.length(modules, x):
        return None if any(map(_observed, modules[:count])) else (stack.compute(modules[:count], x), count)
    if len(modules) < 2 or any(map(_observed, modules[:2])):
        return None
    both = _pair(modules[0], modules[1], x, fresh)
    return None if both is None else (both, 2)


# Layers whose output nobody else has seen; others may return their input.
_MAKERS = (SparseConv2d, ChwnConv2d, ChwnBatchNorm2d)


class ChwnSequential(nn.Sequential):
    """`nn.Sequential` that computes some neighbours in one pass over CHWN tensors."""

    def forward(self, x: Tensor) -> Tensor:
        """The modules in order."""
        modules, fresh = list(self), False
        while modules:
            fused = _fused(modules, x, fresh)
            x, count = (modules[0](x), 1) if fused is None else fused
            last = modules[count - 1]
            fresh = fused is not None or (type(last) in _MAKERS and not _observed(last))
            del modules[:count]
        return x


_CHWN_CLASS = {
    nn.Sequential: ChwnSequential,
    nn.Dropout: ChwnDropout,
    nn.BatchNorm1d: ChwnBatchNorm1d,
    nn.BatchNorm2d: ChwnBatchNorm2d,
    nn.MaxPool2d: ChwnMaxPool2d,
    nn.AvgPool2d: ChwnAvgPool2d,
    nn.AdaptiveAvgPool2d: ChwnAdaptiveAvgPool2d,
}
_ORDINARY_CLASS = {changed: ordinary for ordinary, changed in _CHWN_CLASS.items()} | {ChwnConv2d: nn.Conv2d}


def _ordinary_name(module: nn.Module) -> str:
    """Printed as what it is to its owner."""
    return _ORDINARY_CLASS[type(module)].__name__


for _kind in _ORDINARY_CLASS:
    _kind._get_name = _ordinary_name  # type: ignore[attr-defined]


def use_chwn(model: nn.Module, entrances: Iterable[nn.Conv2d] = ()) -> list[str]:
    """Keep the CHWN layout through `model`, from the outputs of dense convolutions on where they are `entrances`.

    Returns the names of the modules that changed; `restore` reverts.
    """
    _switch(model, {ChwnConv2d: nn.Conv2d})
    for convolution in entrances:
        convolution.__class__ = ChwnConv2d
    return _switch(model, _CHWN_CLASS)


def restore(model: nn.Module) -> list[str]:
    """Undo `use_chwn`."""
    return _switch(model, _ORDINARY_CLASS)


def _switch(model: nn.Module, classes: dict[type, type]) -> list[str]:
    changed = []
    for name, module in model.named_modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]
            changed.append(name)
    return changed
