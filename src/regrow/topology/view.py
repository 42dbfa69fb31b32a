"""What a criterion may look at: one layer, and all layers, at one topology update."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, get_args

import torch
from torch import Tensor, nn

from regrow import randomness
from regrow.errors import ConfigurationError, unknown
from regrow.marks import count_of

if TYPE_CHECKING:
    from regrow.scope import Layer

Need = Literal["gradient", "momentum", "present momentum"]
F = TypeVar("F", bound=Callable)


def needs(*what: Need) -> Callable[[F], F]:
    """Declare which gradients of missing weights a criterion reads, so that they are collected in time.

    Example:
        >>> @needs("gradient")
        ... def steepest(layer):
        ...     return layer.gradient.abs()
    """

    for name in what:
        if name not in get_args(Need):
            raise unknown("kind of gradient", name, get_args(Need))

    def mark(criterion: F) -> F:
        criterion.needs = frozenset(what)  # type: ignore[attr-defined]
        return criterion

    return mark


def needs_of(criterion: object) -> frozenset[Need]:
    """What ``needs`` declared; nothing for an unmarked function."""
    return getattr(criterion, "needs", frozenset())


class Evidence(Protocol):
    """Where a layer's gradient and momentum come from; missing weights included."""

    def gradient(self) -> Tensor: ...  # noqa: D102
    def momentum(self) -> Tensor: ...  # noqa: D102
    def second_moment(self) -> Tensor: ...  # noqa: D102


@dataclass(eq=False)
class LayerView:
    """One sparse layer as a criterion sees it: read, never written.

    ``weight``, ``mask``, ``momentum`` and ``gradient`` have the layer's dense shape; ``mask`` is the one *before* the update.
    ``index`` numbers the handle's layers, ``place`` those that take part in this update (frozen ones do not).

    Attributes:
        name: of the layer.
        evidence: what is known of missing weights; read it through ``momentum`` and ``gradient``.
        rng: a generator for this layer, update and purpose: ``layer.rng("grow")``.
        output_dim: the dimension of the weight that numbers output units.
        rows: the band of the parameter that is this layer, where it is not all of it.
        momentum_scale: factor that makes momenta of several optimizers comparable.
        cost: price of one weight.
        memory: tensors that the method keeps for this layer, saved with the state.
        side, shared: side parameters of this layer, and of the network.
        ever_active: a function that tells which weights have ever existed.
        removed: how many weights this update has pruned here.
    """

    name: str
    index: int
    weight: Tensor
    mask: Tensor
    evidence: Evidence
    rng: Callable[..., torch.Generator]
    place: int = 0
    output_dim: int = 0
    rows: slice | None = None
    momentum_scale: float = 1.0
    cost: float = 1.0
    memory: dict[str, Tensor] = field(default_factory=dict)
    side: Mapping[str, Tensor] = field(default_factory=dict)
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    ever_active: Callable[[], Tensor] | None = None
    removed: int = 0

    @cached_property
    def numel(self) -> int:
        """Number of positions."""
        return self.mask.numel()

    @cached_property
    def nnz(self) -> int:
        """Number of present weights before the update."""
        return count_of(self.mask)

    @property
    def missing(self) -> int:
        """Number of missing weights before the update."""
        return self.numel - self.nnz

    @property
    def where(self) -> Tensor | None:
        """Flat positions of the weights that are shown; None where all are."""
        return None

    @property
    def most(self) -> int:
        """How many weights the layer can end with."""
        return self.numel

    @property
    def before(self) -> Any:
        """Which weights existed before the update: a mask, or :class:`regrow.marks.Marks` in compact storage."""
        return self.mask

    def room(self, removed: Tensor) -> Any:
        """What is missing once ``removed`` is gone."""
        return ~self.mask | removed

    def after(self, removed: Tensor, grown: Any) -> Any:
        """Which weights exist after the update."""
        return (self.mask & ~removed) | grown

    def lost(self, mask: Any) -> Tensor:
        """Which present weights are not in a new mask."""
        return self.mask & ~mask

    def nothing(self) -> Any:
        """No place of the layer marked."""
        return torch.zeros_like(self.mask)

    @cached_property
    def momentum(self) -> Tensor:
        """Momentum of present and missing weights, in the optimizer's own units."""
        return self._slice(self.evidence.momentum())

    @cached_property
    def gradient(self) -> Tensor:
        """Dense gradient of the current step."""
        return self._slice(self.evidence.gradient())

    @cached_property
    def second_moment(self) -> Tensor:
        """The optimizer's running mean of squared gradients (Adam family)."""
        return self._slice(self.evidence.second_moment())

    def random(self, purpose: str) -> Tensor:
        """Uniform draws in the layer's shape, a function of (seed, update, layer, purpose)."""
        return randomness.uniform(self.mask, self.rng(purpose, self.index))

    def units(self, tensor: Tensor) -> Tensor:
        """``tensor`` as a matrix [output units, incoming weights]."""
        return tensor.movedim(self.output_dim, 0).reshape(tensor.shape[self.output_dim], -1)

    def from_units(self, matrix: Tensor) -> Tensor:
        """The inverse of :meth:`units`."""
        shape = list(self.mask.shape)
        unit = shape.pop(self.output_dim)
        return matrix.reshape(unit, *shape).movedim(0, self.output_dim)

    def _slice(self, tensor: Tensor) -> Tensor:
        return tensor if self.rows is None else tensor[self.rows]


@dataclass(frozen=True)
class Source:
    """What statistics are taken from: the model, its sparse layers, batches (inputs, targets), and the mean over ranks."""

    model: nn.Module
    layers: list[Layer]
    calibration: Any
    average: Callable[[Tensor], Tensor]


@dataclass(eq=False)
class Update:
    """One topology update: the layers, the time, the prune rate and the budget to end with.

    ``limit`` is what all present weights may cost together, if compute has a budget; ``price`` is what keeping it took, the power of
    a weight's cost by which shares were divided.
    """

    layers: list[LayerView]
    number: int = 0
    step: int = 0
    rate: float = 0.0
    targets: list[int] | None = None
    floors: list[int] | None = None
    memory: dict[str, float] = field(default_factory=dict)
    rng: Callable[..., torch.Generator] = lambda *key: randomness.generator(0, *key)
    progress: float = 0.0
    limit: float | None = None
    price: float | None = None
    data: Callable[[], Source] | None = None

    @property
    def source(self) -> Source:
        """The model and what it may be looked at with, for methods that ask for ``calibration``."""
        if self.data is None:
            raise ConfigurationError("this update has no data: a method that reads them declares calibration='batches'")
        return self.data()
