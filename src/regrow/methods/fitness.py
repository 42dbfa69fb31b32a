"""What a method's weighting asks of layers, optimizer and execution, checked before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from regrow.errors import ConfigurationError, UnsupportedError
from regrow.product import refuse_unfit
from regrow.scope import Layer
from regrow.weighting import Weighting

if TYPE_CHECKING:
    from regrow.settings import Settings


def check_weighting(settings: Settings, optimizer: Optimizer, layers: Sequence[Layer], execution: str) -> None:
    """Refuse layers, weight decay, execution and schedules that the method cannot work with."""
    method, weighting = settings.method, settings.method.weighting
    if method.outcome is not None:
        _check_cut(settings)
    if weighting is None:
        return
    if settings.samples is not None and not (isinstance(settings.samples, int) and settings.samples >= 1):
        raise ConfigurationError(
            f"samples must be a positive whole number, that of the training samples, got {settings.samples!r}"
        )
    if weighting.samples and settings.samples is None:
        raise ConfigurationError(
            f"method {method.name!r} shares its penalty between the training samples: pass samples=<their number>, e.g. len(dataset)"
        )
    if weighting.product is not None:
        refuse_unfit(method.name, {layer.name: layer.module for layer in layers})
    refuse_execution(method.name, weighting, execution)
    if not weighting.decays:
        _refuse_decay(method.name, optimizer, layers)


def refuse_execution(name: str, weighting: Weighting | None, execution: str) -> None:
    """An error for sparse kernels where training computes with weights beyond the mask."""
    if weighting is not None and weighting.trains_otherwise and execution != "masked":
        raise UnsupportedError(
            f"method {name!r} trains with dense or noisy weights, which have no sparse kernels: leave execution at 'masked' "
            "(after handle.finish() any will do)"
        )


def _check_cut(settings: Settings) -> None:
    outcome, steps = settings.method.outcome, settings.steps
    if outcome is None or not outcome.exact:
        return
    if steps is None:
        raise ConfigurationError(
            "budget='exact' cuts some steps before the end of the run: pass steps=<number of optimizer steps>"
        )
    if not 0 <= (outcome.finetune_steps or 0) < steps:
        raise ConfigurationError(f"finetune_steps must lie in [0, {steps}), the run, got {outcome.finetune_steps}")


def _refuse_decay(name: str, optimizer: Optimizer, layers: Sequence[Layer]) -> None:
    decayed = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"] if g.get("weight_decay")}
    for layer in layers:
        if decay := decayed.get(id(layer.parameter)):
            raise ConfigurationError(
                f"method {name!r} has a penalty of its own, but the optimizer decays {layer.parameter_name} by {decay:g}: set "
                "weight_decay=0 for the sparse layers"
            )
