"""Lets the layout travel: modules between sparse layers keep [C][H][W][N] with fast native code, reversibly.

Only modules of exactly the listed torch classes change their class; hooks, parameters, buffers and `state_dict` stay.
Everything else receives tensors with legal strides and stays correct.
"""

from __future__ import annotations

from torch import Tensor, nn

from regrow.execution.norm import TravelBatchNorm1d, TravelBatchNorm2d, batch_norm, takes
from regrow.execution.pool import TravelAdaptiveAvgPool2d, TravelAvgPool2d, TravelMaxPool2d

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _fusible(norm: nn.Module, relu: nn.Module) -> bool:
    """A batch norm followed by a plain ReLU, neither observed by hooks."""
    return (
        isinstance(norm, TravelBatchNorm1d | TravelBatchNorm2d)
        and type(relu) is nn.ReLU
        and not any(getattr(module, hooks) for module in (norm, relu) for hooks in _HOOKS)
    )


class TravelSequential(nn.Sequential):
    """`nn.Sequential` that computes a batch norm and the ReLU behind it in one pass over travelling tensors."""

    def forward(self, x: Tensor) -> Tensor:
        """The modules in order."""
        modules = list(self)
        skip = False
        for module, following in zip(modules, [*modules[1:], None], strict=True):
            if skip:
                skip = False
            elif following is not None and _fusible(module, following) and takes(module, x):
                x, skip = batch_norm(module, x, relu=True), True
            else:
                x = module(x)
        return x


_TRAVEL_CLASS = {
    nn.Sequential: TravelSequential,
    nn.BatchNorm1d: TravelBatchNorm1d,
    nn.BatchNorm2d: TravelBatchNorm2d,
    nn.MaxPool2d: TravelMaxPool2d,
    nn.AvgPool2d: TravelAvgPool2d,
    nn.AdaptiveAvgPool2d: TravelAdaptiveAvgPool2d,
}
_ORDINARY_CLASS = {travelling: ordinary for ordinary, travelling in _TRAVEL_CLASS.items()}


def travel(model: nn.Module) -> list[str]:
    """Let the layout travel through `model`; returns the names of the modules that changed. `settle` reverts."""
    return _switch(model, _TRAVEL_CLASS)


def settle(model: nn.Module) -> list[str]:
    """Undo `travel`."""
    return _switch(model, _ORDINARY_CLASS)


def _switch(model: nn.Module, classes: dict[type, type]) -> list[str]:
    changed = []
    for name, module in model.named_modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]
            changed.append(name)
    return changed
