"""Which runs can keep present weights only, said before anything changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from regrow.arguments import STORAGES
from regrow.errors import ConfigurationError, UnsupportedError, unknown
from regrow.execution.modules.compact import TOO_LARGE
from regrow.execution.modules.layers import execution_of
from regrow.execution.switch import why_not
from regrow.methods.method import Method
from regrow.scope import Layer, is_inputs_first
from regrow.settings import Settings
from regrow.support import Support
from regrow.topology.initial import follows_rank
from regrow.topology.redistribute import SHARES
from regrow.topology.score import is_per_weight

_IGNORED = "_ddp_params_and_buffers_to_ignore"  # torch's own name for it


def check_storage(model: nn.Module, settings: Settings, layers: Sequence[Layer], execution: str, costs: Any) -> None:
    """Refuse compact storage with an execution, a method or layers that need dense ones, each with its remedy."""
    if settings.storage not in STORAGES:
        raise unknown("storage", settings.storage, STORAGES)
    _check_candidates(settings, layers)
    if settings.storage == "dense":
        return
    if execution != "sparse":
        raise ConfigurationError(
            f"storage='compact' has no dense weights for execution={execution!r}: say execution='sparse', or leave storage at 'dense'"
        )
    if any(isinstance(module, nn.parallel.DistributedDataParallel) for module in model.modules()):
        raise UnsupportedError(
            "DistributedDataParallel lays out gradients once, and those of compact storage change their size: sparsify the plain model "
            "first and wrap it afterwards"
        )
    if isinstance(costs, str):
        raise ConfigurationError(
            "costs='measured' times dense copies: with storage='compact' pass costs=<example input>"
        )
    if (why := _dense_need(settings.method)) is not None:
        raise UnsupportedError(
            f"method {settings.method.name!r} {why}: leave storage at 'dense', or take another method"
        )
    for layer in layers:
        reason = "its weight is stored inputs first" if is_inputs_first(layer.module) else why_not(layer)
        if reason is not None:
            raise UnsupportedError(
                f"layer {layer.name} cannot be stored compact: {reason}. Keep it dense by scope, scope=Scope(dense=({layer.name!r},)), or "
                "leave storage at 'dense'"
            )


def _check_candidates(settings: Settings, layers: Sequence[Layer]) -> None:
    """Refuse candidates where no momentum window is compact, and dense accumulators that could not exist."""
    smooths = "momentum" in settings.method.needs and settings.clock is not None
    if settings.window_candidates and settings.storage == "dense":
        raise ConfigurationError(
            "window_candidates is for momentum windows of storage='compact', which has no dense gradients: say storage='compact' and "
            "execution='sparse', or leave window_candidates out"
        )
    if settings.window_candidates and not smooths:
        raise ConfigurationError(
            f"method {settings.method.name!r} grows no weights by momentum, so that its windows have no candidates: leave "
            "window_candidates out"
        )
    large = next((layer for layer in layers if layer.shape.numel() >= TOO_LARGE), None)
    if smooths and not settings.window_candidates and large is not None:
        raise UnsupportedError(
            f"layer {large.name} has {large.shape.numel():,} positions, too many for momentum of all missing weights: say "
            "window_candidates=4 (momentum of four candidates for each weight to grow), or take a method without momentum windows"
        )


def density_of_held(layers: Sequence[Layer]) -> float | None:
    """The density of layers that exist only sparse; None if there is none."""
    held = [support for layer in layers if (support := _held(layer)) is not None]
    if not held:
        return None
    return sum(support.nnz for support in held) / sum(support.numel for support in held)


def held_supports(settings: Settings, layers: Sequence[Layer]) -> dict[str, Support]:
    """Which weights exist in layers that exist only sparse, by parameter; an error where only some layers do."""
    held = {layer.parameter_name: support for layer in layers if (support := _held(layer)) is not None}
    if held and settings.storage != "compact":
        raise ConfigurationError(f"{min(held)} exists only sparse: say storage='compact' and execution='sparse'")
    if held and not follows_rank(settings.method.initial):
        raise UnsupportedError(
            f"method {settings.method.name!r} chooses its first weights from dense layers, and {min(held)} exists only sparse: take another"
        )
    for layer in layers:
        if held and layer.parameter_name not in held:
            raise ConfigurationError(
                f"layer {layer.name} is dense where others exist only sparse: keep it so, scope=Scope(dense=({layer.name!r},)), or make it "
                "with regrow.nn.SparseLinear"
            )
    return held


def _held(layer: Layer) -> Support | None:
    execution = execution_of(layer.module)
    return execution.pattern.support if execution is not None and execution.only_compact else None


def keep_from_reducer(model: nn.Module, layers: Sequence[Layer]) -> None:
    """Tell DistributedDataParallel to leave compact weights alone: their gradients are averaged as they arrive."""
    names = [layer.parameter_name for layer in layers]
    before = getattr(model, _IGNORED, ())
    # A compiled model gives its parameters another name.
    setattr(model, _IGNORED, [*dict.fromkeys([*before, *names, *(f"_orig_mod.{name}" for name in names)])])


def _dense_need(method: Method) -> str | None:
    """What of a method has the dense shape of a layer; None if nothing."""
    if method.weighting is not None:
        return "trains weights of missing positions too"
    if method.rounds is not None and method.rounds.rewind:
        return "keeps a dense copy of its first weights"
    actions = (method.prepare, method.adjust, method.perturb)
    if any(action is not None and not is_per_weight(action) for action in actions):
        return (
            "changes weights or gradients around each step by functions that are not declared with @regrow.per_weight"
        )
    if method.sets_values:
        return "sets the values of weights in dense layers"
    if method.rewire is not None and not getattr(method.rewire, "by_bands", False):
        return "chooses its masks in one piece from dense layers"
    share = getattr(method.redistribute, "share", None)
    if share is not None and share not in SHARES.values() and not is_per_weight(share):
        return (
            "redistributes by a criterion that is not declared with @regrow.per_weight, and may look at missing weights"
        )
    return None
