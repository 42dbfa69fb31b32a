"""The one line: ``regrow.sparsify``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from regrow import attach
from regrow.allowance import check_allowance
from regrow.arguments import MOMENTUM_SOURCES
from regrow.defaults import differing
from regrow.errors import ConfigurationError, ScheduleWarning, ScopeWarning, unknown
from regrow.execution.choosing.prices import Prices, refuse_unmeasurable
from regrow.execution.switch import check_execution
from regrow.handle import Handle
from regrow.identity import agree, identity_of
from regrow.methods import METHODS, Method, build
from regrow.methods.fitness import check_weighting
from regrow.ranges import CANDIDATES
from regrow.ranks import Ranks
from regrow.scope import Decision, Layer, Rule, Scope, choose, uncovered, unwrap
from regrow.settings import DEFAULT_STRIDE, Settings
from regrow.start import Start, check_start, density_of_zeros, warn_of_trained
from regrow.storage import check_storage, density_of_held, held_supports, keep_from_reducer
from regrow.topology.redistribute import Share
from regrow.topology.schedule import Clock, require_steps
from regrow.topology.score import Score
from regrow.uses import uses_per_weight

DEFAULT_INTERVAL = 500
"""Steps between topology updates where neither ``update_every`` nor ``steps_per_epoch`` is given."""
_CUT = "let it be cut to a budget with budget='exact' and finetune_steps=<steps with fixed masks at the end>"


def sparsify(
    model: nn.Module,
    optimizer: Optimizer,
    method: str | Method = "sparse-momentum",
    *,
    density: float | None = None,
    steps: int | None = None,
    update_every: int | None = None,
    steps_per_epoch: int | None = None,
    scope: str | Scope | Sequence[Rule] = "fully-sparse",
    distribution: str | Callable[..., list[float]] | Mapping[str, float] | None = None,
    seed: int = 0,
    window_tolerance: float = 0.1,
    window_stride: int = DEFAULT_STRIDE,
    window_candidates: float = 0.0,
    momentum: Literal["optimizer", "gradient"] = "optimizer",
    prune: Score | None = None,
    redistribute: Share | None = None,
    grow: Score | None = None,
    calibration: Any = None,
    samples: int | None = None,
    costs: Mapping[str, float] | torch.Tensor | Literal["measured"] | None = None,
    macs: float | None = None,
    milliseconds: float | None = None,
    execution: Literal["masked", "sparse", "auto"] = "masked",
    native_step: bool = True,
    storage: Literal["dense", "compact"] = "dense",
    process_group: Any = None,
    start: Start | None = None,
    **options: Any,
) -> Handle:
    """Make a model sparse; the training loop stays as it is.

    Args:
        model: any module, also inside ``torch.compile`` or ``DistributedDataParallel``.
        optimizer: the optimizer of its parameters; hooks on it enforce masks and run topology updates.
        method: a name from :func:`regrow.list_methods`, or a :class:`regrow.Method`.
        density: share of weights present in the sparse layers, in (0, 1].
        steps: optimizer steps of the whole run (with gradient accumulation fewer than batches), for schedules that decay.
        update_every: optimizer steps between topology updates. Default: ``steps_per_epoch`` or the method's own interval, else 500.
        steps_per_epoch: optimizer steps in one epoch, e.g. ``len(loader)``.
        scope: which layers are sparse: ``"fully-sparse"``, ``"partially-dense"``, ``"partially-dense-cifar"``,
            ``"dense:RULE,..."`` or a :class:`regrow.Scope`.
        distribution: budget per layer: ``"uniform"``, ``"er"``, ``"erk"``, a function, or a map from layer pattern to density.
        seed: seed of everything random in masks.
        window_tolerance: share of momentum that the growth window may miss; 0 collects it in every step, as the paper does.
        window_stride: collect evidence for growth in every so many steps of the window, which then stand for those between.
        window_candidates: with ``storage="compact"``, keep momentum in a window for so many candidates per weight to grow, those with the
            largest gradient at its first step; 0 keeps it for all missing weights, in the layer's dense shape.
        momentum: score by the ``optimizer``'s momentum, or by an own average of the pure ``gradient`` (without weight decay).
        prune, redistribute, grow: own criteria, plain functions of a layer, in place of the method's.
        calibration: a function that returns the loss of a batch (SNIP, GraSP), an example input (SynFlow), or batches
            (inputs, targets), also from a function that returns them (L-OBS, OBD).
        samples: number of training samples, for methods whose penalty is shared between them (L0, variational dropout, ...).
        costs: price of one weight of each layer, by layer name, for methods that weigh benefit against compute; or an example input, from
            which multiply-accumulates per weight are counted; or ``"measured"``: milliseconds per present weight on the native kernels,
            timed in the first step and kept in the state.
        macs: budget in compute beside the budget in weights: at most this share of the dense multiply-accumulates of the sparse layers, at
            the start and after every topology update, with ``costs=<example input>``. Redistribution is then by benefit per cost.
        milliseconds: the same in time, with ``costs="measured"``: at most this share of what the dense layers take.
        execution: ``masked`` computes dense with zeros, on any device; ``sparse`` runs native CPU kernels on the present weights;
            ``auto`` measures after the first step and takes the faster, chain by chain of layers.
        native_step: with sparse kernels, SGD and AdamW touch present weights only in mostly empty layers; torch's arithmetic.
        storage: ``dense`` keeps weights, gradients and optimizer state in the layers' shapes with zeros; ``compact`` keeps present entries
            only, all through training, with ``execution="sparse"`` (docs/compact.md).
        process_group: ranks that train together; the default group if there is one; False for none.
        start: which weights exist at first: drawn at ``"random"``, the largest of each layer (``"magnitude"``: pretrained models), or those
            that are not zero (``"zeros"``: sparse models from elsewhere; density may be left out). Default: the method's own rule, which is
            random for most, with a warning where the weights look trained.
        options: the method's own options.

    Returns:
        A :class:`regrow.Handle` with masks, plan, journal and state.

    Example:
        >>> net = nn.Linear(8, 4)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        >>> sparsify(net, optimizer, density=0.25, steps=100, update_every=10).nonzeros
        8
    """
    _check_model(model)
    recipe = _recipe(method, options, prune, redistribute, grow)
    counts = {"steps": steps, "update_every": update_every, "steps_per_epoch": steps_per_epoch}
    _check_numbers(density, window_tolerance, seed, window_stride=window_stride, **counts)
    CANDIDATES.check("window_candidates", window_candidates)
    inner = attach.supported(optimizer)
    layers, decisions = choose(model, scope)
    attach.refuse_owned(layers)
    settings = Settings(
        method=recipe,
        density=_density(recipe, density, layers, start),
        distribution=recipe.distribution if distribution is None else distribution,
        clock=_clock(recipe, steps, update_every, steps_per_epoch),
        seed=int(seed),
        window_tolerance=window_tolerance,
        window_stride=int(window_stride),
        window_candidates=float(window_candidates),
        pure_gradient=_pure_gradient(momentum) or recipe.pure_gradient,
        options=differing(method, options) if isinstance(method, str) else {},
        samples=samples,
        macs=macs,
        milliseconds=milliseconds,
        start=start,
        storage=storage,
    )
    _check_together(settings, model, inner, layers, calibration, costs, execution)
    held = held_supports(settings, layers)
    handle = Handle(model, inner, layers, decisions, settings, Ranks(process_group), held)
    return _begun(handle, costs, calibration, execution, native_step)


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    empty = next((name for name, parameter in model.named_parameters() if parameter.is_meta), None)
    if empty is not None:
        raise ConfigurationError(
            f"{empty} is on the meta device and holds no numbers: build the model without it, or regrow.nn.materialise(model, density=...)"
        )


def _begun(handle: Handle, costs: Any, calibration: Any, execution: str, native_step: bool) -> Handle:
    try:
        _check_cover(handle.decisions)
        if not any(sparse.is_compact for sparse in handle.parameters):
            warn_of_trained(handle.model, handle.optimizer, handle.network.layers, handle.settings)
        handle.network.costs = _costs(handle.method, costs, handle)
        agree(handle.network.ranks, _common_to_ranks(handle, execution, native_step))
        handle.initialise(calibration)
        handle.execute(execution, native_step)
        if handle.settings.storage == "compact":
            keep_from_reducer(handle.model, handle.network.layers)
        _check_first_update(handle.settings)
        return handle
    except BaseException:
        handle.detach()
        raise


def _recipe(
    method: str | Method, options: dict[str, Any], prune: Score | None, redistribute: Share | None, grow: Score | None
) -> Method:
    recipe = build(method, options)
    if prune is not None or redistribute is not None or grow is not None:
        return recipe.with_criteria(prune, redistribute, grow)
    return recipe


def _check_together(
    settings: Settings,
    model: nn.Module,
    optimizer: Optimizer,
    layers: list[Layer],
    calibration: Any,
    costs: Any,
    execution: str,
) -> None:
    check_allowance(settings, costs)
    _check_calibration(settings.method, calibration)
    _check_schedule(settings)
    check_execution(execution)
    check_storage(model, settings, layers, execution, costs)
    check_weighting(settings, optimizer, layers, execution)
    if settings.method.fits is not None:
        settings.method.fits(unwrap(model), layers)


def _common_to_ranks(handle: Handle, execution: str, native_step: bool) -> dict[str, Any]:
    """What ranks must have in common: all that decides the run, the layers, and how they are computed."""
    shapes = {layer.name: tuple(layer.shape) for layer in handle.network.layers}
    how = {"start": handle.settings.start, "execution": execution, "native_step": native_step, "sparse layers": shapes}
    return {**how, **identity_of(handle.network)}


def _check_cover(decisions: Sequence[Decision]) -> None:
    """Warn of a model whose matrices are mostly of kinds that the scope does not know, and stay dense."""
    if (largest := uncovered(decisions)) is not None:
        warnings.warn(
            f"less than half of the model's matrix weights are in the scope; the largest left dense is {largest.name} "
            f"{list(largest.shape)} ({largest.reason}). Bring it in with scope=Scope(include=('{largest.name}',)); weight norm, spectral "
            "norm and torch.nn.utils.prune keep a weight under another name: remove them before sparsify",
            ScopeWarning,
            stacklevel=4,
        )


def _check_numbers(density: float | None, tolerance: float, seed: int, **counts: int | None) -> None:
    if isinstance(density, Mapping):
        raise ConfigurationError(
            f"density is one number, of all sparse layers; for each its own say distribution={density!r} beside it"
        )
    if density is not None and not (_is_number(density, Real) and 0 < density <= 1):
        raise ConfigurationError(f"density must lie in (0, 1], got {density!r}: 0.05 keeps 5% of the weights")
    if not _is_number(seed, Integral):
        raise ConfigurationError(f"seed must be a whole number, got {seed!r}")
    for name, value in counts.items():
        if value is not None and not (_is_number(value, Integral) and value >= 1):
            raise ConfigurationError(f"{name} must be a positive whole number of optimizer steps, got {value!r}")
    if not _is_number(tolerance, Real) or not 0 <= tolerance < 1:
        raise ConfigurationError(
            f"window_tolerance must lie in [0, 1), got {tolerance!r}: 0 collects momentum in every step"
        )


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _density(method: Method, density: float | None, layers: Sequence[Any], start: str | None) -> float:
    check_start(method, start)
    if (held := density_of_held(layers)) is not None:
        if density is not None and abs(density - held) > 1e-3 * held:
            raise ConfigurationError(f"the layers exist with density {held:.4g} already: leave density out")
        return held
    if start == "zeros" and density is None:
        return density_of_zeros(layers)
    if method.fixed_counts is not None:
        fixed = sum(method.fixed_counts(layers)) / sum(math.prod(layer.shape) for layer in layers)
        if density is not None and abs(density - fixed) > 1e-3:
            raise ConfigurationError(
                f"method {method.name!r} has density {fixed:.4g} by construction: leave density out"
            )
        return fixed
    if method.outcome is not None and not method.outcome.exact:
        if density is not None:
            raise ConfigurationError(
                f"the density of method {method.name!r} is an outcome of its training: leave density out, or "
                + (method.outcome.remedy or _CUT)
            )
        return 1.0
    if density is None:
        raise ConfigurationError("density is missing: pass the share of weights to keep, e.g. density=0.05")
    return float(density)


def _clock(method: Method, steps: int | None, update_every: int | None, steps_per_epoch: int | None) -> Clock | None:
    if method.when is None:
        return None
    if method.rate_needs_steps:
        require_steps(method.name, steps)
    every = update_every or method.when.interval(steps, steps_per_epoch or DEFAULT_INTERVAL)
    return Clock(method.when, int(every), None if steps is None else int(steps))


def _check_schedule(settings: Settings) -> None:
    """A density that moves must arrive: its last topology update has to lie behind the end of its schedule."""
    clock, method = settings.clock, settings.method
    if clock is None or clock.steps is None or method.density is None:
        return
    last = clock.last_due()
    reached = settings.density_at(0.0 if last is None else clock.progress(last))
    if abs(reached - settings.density) > 1e-9:
        raise ConfigurationError(
            f"method {method.name!r} would end at density {reached:.4g}, not {settings.density:g}: with "
            f"update_every={clock.every} the last topology update of {clock.steps} steps comes too early. Choose a smaller "
            "update_every, or more steps"
        )


def _check_first_update(settings: Settings) -> None:
    """Warn of a run without a single topology update, which a method that moves its masks cannot mean."""
    clock = settings.clock
    if clock is None or clock.next_due(0 if clock.when.phase == "instead" else 1) is not None:
        return
    warnings.warn(
        f"masks will never change: method {settings.method.name!r} updates them every {clock.every} steps, and the run ends after "
        f"{clock.steps}. Choose a smaller update_every, or more steps",
        ScheduleWarning,
        stacklevel=4,
    )


def _pure_gradient(momentum: str) -> bool:
    if momentum not in MOMENTUM_SOURCES:
        raise unknown("momentum source", momentum, MOMENTUM_SOURCES)
    return momentum == "gradient"


def _check_calibration(method: Method, calibration: Any) -> None:
    if method.calibration == "loss" and not callable(calibration):
        raise ConfigurationError(
            f"method {method.name!r} scores weights on data: pass calibration=lambda: loss_function(model(inputs), targets)"
        )
    if method.calibration == "input" and not isinstance(calibration, torch.Tensor):
        raise ConfigurationError(
            f"method {method.name!r} needs the shape of an input: pass calibration=<one example batch>"
        )
    if method.calibration == "batches" and not _is_batches(calibration):
        raise ConfigurationError(
            f"method {method.name!r} looks at data when it prunes: pass calibration=<batches (inputs, targets), or a function that "
            "returns them>"
        )


def _is_batches(calibration: Any) -> bool:
    return callable(calibration) or (
        isinstance(calibration, Iterable) and not isinstance(calibration, (torch.Tensor, str))
    )


def _costs(method: Method, costs: Mapping[str, float] | torch.Tensor | str | None, handle: Handle) -> list[float]:
    layers = handle.network.layers
    if isinstance(costs, str):
        return _measured_costs(costs, handle)
    if costs is None:
        if method.needs_costs:
            raise ConfigurationError(
                "cost_power needs costs: pass costs=<example input>, costs='measured' or costs={layer: price of one weight}"
            )
        return [1.0] * len(layers)
    if isinstance(costs, torch.Tensor):
        uses = uses_per_weight(handle.model, costs)
        return [uses.get(layer.parameter, 1.0) for layer in layers]
    if missing := [layer.name for layer in layers if layer.name not in costs]:
        raise ConfigurationError(f"costs lack layer {missing[0]!r}: give a price for every sparse layer")
    prices = {layer.name: float(costs[layer.name]) for layer in layers}
    for name, price in prices.items():
        if not (math.isfinite(price) and price > 0):
            raise ConfigurationError(
                f"the price of a weight of layer {name!r} must be positive and finite, got {price}"
            )
    return list(prices.values())


def _measured_costs(costs: str, handle: Handle) -> list[float]:
    """Those of the network stand in until the first step, which measures."""
    if costs != "measured":
        raise unknown("costs", costs, ("measured",))
    network = handle.network
    refuse_unmeasurable(network.layers)
    network.prices = Prices(network)
    network.prices.listen(handle.model)
    return network.costs


def list_methods(show: bool = True) -> list[Method]:
    """Print the table of methods and return their records.

    Args:
        show: print the table too.
    """
    methods = [factory() for factory in METHODS.values()]
    if show:
        from regrow.methods.listing import show_methods

        show_methods(methods)
    return methods
