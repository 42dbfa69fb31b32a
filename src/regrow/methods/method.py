"""A method is a record of pieces; the registry knows them all by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regrow.arguments import ways_to_say
from regrow.errors import ConfigurationError, unknown
from regrow.scope import Layer
from regrow.topology.cycle import Change, rewire
from regrow.topology.grow import Grow
from regrow.topology.initial import Initial, at_random
from regrow.topology.outcome import Outcome
from regrow.topology.prune import Prune, Pruning
from regrow.topology.redistribute import Redistribute, Share
from regrow.topology.schedule import Curve, When, constant
from regrow.topology.score import Score
from regrow.topology.view import Need, Update, needs_of
from regrow.weighting import Weighting

_NO_PRUNING = constant(0.0)
CONTROL = "control"
"""The paper of what methods are compared with."""
BudgetRule = Literal["constant", "schedule", "upper bound", "free", "outcome"]


@dataclass(eq=False)
class StepView:
    """One layer around an optimizer step, for methods that touch gradients or weights then; only ``adjust`` sees a gradient.

    Functions declared with :func:`regrow.per_weight` also run in compact storage: tensors are then vectors of the present weights, and
    ``where`` has their flat positions, ascending.
    """

    index: int
    weight: Tensor
    arrived: Tensor | None
    mask: Tensor
    reach: Tensor
    lr: float
    memory: dict[str, Tensor]
    rng: Callable[..., torch.Generator]
    progress: float
    interval: int = 0
    where: Tensor | None = None

    @property
    def grad(self) -> Tensor:
        """The gradient that the optimizer is about to see, to be changed in place."""
        if self.arrived is None:
            raise ConfigurationError(
                "only a method's adjust sees layer.grad: prepare and perturb run without a gradient"
            )
        return self.arrived


@dataclass(frozen=True)
class Rounds:
    """Repeated train-prune rounds: each keeps ``keep`` of the present weights until the target density is reached.

    ``rewind`` puts all weights back to their values at ``rewind_step``.
    """

    keep: float = 0.8
    rewind: bool = True
    rewind_step: int = 0


@dataclass(frozen=True)
class Method:
    """A published method as a composition of pieces; most methods name a few of the first two groups below.

    Pieces left out mean: random first masks, nothing pruned, every layer regrows what it lost, nothing grown, fixed masks.

    Attributes:
        name, paper, year, summary: what it is called, who published it when, and what it does in a line.
        distribution: budget per layer at the start.
        initial: which weights exist at first.
        budget: the rule that the number of weights follows.
        density, floor: turn the target density into a curve over the run, where the budget moves.
        fixed_counts: prescribes the budget where the density is no free choice but ``own_density`` (up to rounding in each layer).
        when: in which steps topology updates happen.
        rate: prune rate over the run; ``rate_needs_steps`` if it must know where the run ends.
        prune: what goes.
        redistribute: where to.
        grow: what comes.
        rewire: the whole topology update, where it is no prune, redistribute and grow.
        sets_values: updates come with new weights (compensation, values of grown weights).
        prepare: fills a layer's memory at the start.
        adjust, perturb: run before and after each optimizer step.
        weighting: what is trained where that is more than the present weights.
        outcome: which masks follow from it where the density is a result (budget rule ``outcome``).
        rounds: what ``handle.rewind()`` does, for methods that train, prune and train again.
        fits: refuses a model, or layers, that it cannot take.
        calibration: whether first masks need a ``loss`` or an ``input``, or updates need ``batches``.
        needs_costs: whether ``sparsify(costs=...)`` is required.
        pure_gradient: score by an own average of the gradient.
        extra_needs: evidence of missing weights beyond what the pieces say they read.
        extra_memory: what it keeps beside the weights, in words.
        neutral: options with which, all weights present, it trains as the dense network does; None where noise stays.
    """

    name: str
    paper: str
    year: int
    summary: str
    _: KW_ONLY

    # How many weights, and which at first.
    distribution: str = "uniform"
    initial: Initial = at_random
    budget: BudgetRule = "constant"
    density: Callable[[float], Curve] | None = None
    floor: Callable[[float], Curve] | None = None
    fixed_counts: Callable[[Sequence[Layer]], list[int]] | None = None
    own_density: float | None = None

    # Topology updates.
    when: When | None = None
    rate: Curve = _NO_PRUNING
    rate_needs_steps: bool = True
    prune: Pruning | None = None
    redistribute: Redistribute | None = None
    grow: Grow | None = None
    rewire: Callable[[Update], Change] | None = None
    sets_values: bool = False

    # Around each optimizer step.
    prepare: Callable[[StepView], None] | None = None
    adjust: Callable[[StepView], None] | None = None
    perturb: Callable[[StepView], None] | None = None

    # What is trained, and what is left.
    weighting: Weighting | None = None
    outcome: Outcome | None = None
    rounds: Rounds | None = None

    # What it asks for.
    fits: Callable[[nn.Module, Sequence[Layer]], None] | None = None
    calibration: Literal["loss", "input", "batches", None] = None
    needs_costs: bool = False
    pure_gradient: bool = False
    extra_needs: frozenset[Need] = frozenset()

    # What tables and checks say of it.
    extra_memory: str = "none"
    neutral: Mapping[str, Any] | None = None

    @property
    def citation(self) -> str:
        """Who published it when; controls have no paper."""
        return self.paper if self.paper == CONTROL else f"{self.paper} {self.year}"

    @property
    def needs(self) -> frozenset[Need]:
        """Which gradients of missing weights the pieces read."""
        pieces = (
            getattr(self.prune, "score", None),
            getattr(self.prune, "count", None),
            getattr(self.redistribute, "share", None),
            getattr(self.grow, "score", None),
            self.prune,
            self.redistribute,
            self.grow,
            self.rewire,
        )
        return frozenset().union(self.extra_needs, *(needs_of(piece) for piece in pieces))

    @property
    def free_of_density(self) -> bool:
        """Whether the method takes no density: it has one by construction, or it comes out of training."""
        return self.fixed_counts is not None or (self.outcome is not None and not self.outcome.exact)

    @property
    def ends(self) -> bool:
        """Whether ``handle.finish()`` leaves less than the method trains."""
        return self.weighting is not None and (self.weighting.ends or self.outcome is not None)

    @property
    def only_removes(self) -> bool:
        """Whether masks can only lose weights."""
        return self.grow is None and self.rewire is None

    def update(self, update: Update) -> Change:
        """Run one topology update: prune, redistribute, grow, or the method's own rewiring."""
        if self.rewire is not None:
            return self.rewire(update)
        return rewire(update, self.prune, self.redistribute, self.grow)

    def with_criteria(self, prune: Score | None, redistribute: Share | None, grow: Score | None) -> Method:
        """Exchange criteria by plain functions of a layer: scores for pruning and growth, a share for redistribution."""
        for name, criterion in (("prune", prune), ("redistribute", redistribute), ("grow", grow)):
            if criterion is not None and not callable(criterion):
                raise ConfigurationError(
                    f"{name} must be a function of a layer, got {criterion!r}: see docs/own_criterion.md"
                )
        self._check_exchange(prune)
        method = self
        if prune is not None:
            piece = replace(self.prune, score=prune) if isinstance(self.prune, Prune) else Prune(score=prune)
            method = replace(method, prune=piece)
        if redistribute is not None:
            base = self.redistribute or Redistribute()
            method = replace(method, redistribute=replace(base, share=redistribute))
        if grow is not None:
            method = replace(method, grow=replace(self.grow or Grow(), score=grow))
        return method

    def _check_exchange(self, prune: Score | None) -> None:
        """Refuse a criterion that would never be asked."""
        if self.rewire is not None:
            raise ConfigurationError(
                f"method {self.name!r} chooses its masks in one piece: its prune, redistribute and grow cannot be exchanged"
            )
        if self.when is None and self.rounds is None:
            raise ConfigurationError(f"method {self.name!r} never changes its masks: own criteria would not be asked")
        if prune is not None and not isinstance(self.prune, Prune):
            raise ConfigurationError(
                f"method {self.name!r} prunes by a rule of its own, not by a score: it takes no prune criterion"
            )


Factory = Callable[..., Method]
METHODS: dict[str, Factory] = {}


def register(factory: Factory) -> Factory:
    """Add a method factory under the name of the method it builds by default; a name taken is an error."""
    name = factory().name
    if name in METHODS:
        raise ConfigurationError(f"a method named {name!r} is registered already ({METHODS[name].__module__})")
    METHODS[name] = factory
    return factory


def build(method: str | Method, options: dict[str, Any]) -> Method:
    """Look a method up and apply its options; a ready :class:`Method` passes through."""
    if isinstance(method, Method):
        if options:
            raise ConfigurationError(f"unknown argument {sorted(options)[0]!r}: a ready Method takes no options")
        return method
    if not isinstance(method, str):
        raise ConfigurationError(f"method must be a name or a regrow.Method, got {method!r}: see regrow.list_methods()")
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    factory = METHODS[method]
    valid, ways = inspect.signature(factory).parameters, ways_to_say()
    for option in options:
        if option == "sparsity" and option not in valid:
            raise ConfigurationError(
                "sparsity is no argument: give density = 1 - sparsity, the share of weights that stay"
            )
        if option in ways and option not in valid:
            raise ConfigurationError(f"{option!r} is no option of method {method!r}: say {ways[option]}")
        if option not in valid:
            raise unknown("option", option, [*valid, *ways, *_all_arguments()], of=f"method {method!r}")
    return factory(**options)


def _all_arguments() -> list[str]:
    """Those of ``sparsify``, which imports this module."""
    from regrow.api import sparsify

    own = inspect.signature(sparsify).parameters.values()
    return [parameter.name for parameter in own if parameter.kind is parameter.KEYWORD_ONLY]
