"""Compact storage: a parameter that holds present weights only, in the order of their positions, and so do its gradient and state.

The optimizer, the model and everybody else keep the same parameter object; only what it holds changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

import torch
from torch import Tensor

from regrow.errors import StateError
from regrow.evidence import CompactMoments, StreamedGradient
from regrow.execution.kernels.compact import ReachedGradient, WholeGradient
from regrow.execution.kernels.pattern import SparsePattern
from regrow.marks import Marks, among, placed, positions
from regrow.momentum import Moments, shaped_slots
from regrow.parameter import SparseParameter, factor_between
from regrow.ranks import Ranks
from regrow.support import Support
from regrow.vectors import resize

Kind = TypeVar("Kind", bound=Moments)
Loaded = tuple[Tensor, Tensor]
"""Positions, ascending, and values there, of weights that were loaded before their masks."""


_FEW = 4
"""Gradients of a window are computed by themselves where they are at most one in so many."""


class CompactParameter(SparseParameter):
    """A :class:`SparseParameter` whose parameter is the vector of present weights: nothing is there to be masked."""

    moments: CompactMoments
    incoming: StreamedGradient | None  # type: ignore[assignment]

    def _become(self, groups: int) -> None:
        """What is kept besides, in this form."""
        self.loaded: Loaded | None = None
        self.average: Callable[[Tensor], Tensor] = lambda tensor: tensor
        self._witnessed: list[WholeGradient | ReachedGradient] = []
        self._overflowed: Tensor | None = None
        self.arrives_masked = self._arriving = self._masked = None
        self.incoming = None
        self.moments = _exchanged(self.moments, CompactMoments)
        self.moments.groups = groups
        self._bytes = self.moments.mask = None  # type: ignore[assignment]  # what dense storage keeps

    @property
    def is_compact(self) -> bool:
        """Whether the parameter holds present weights only."""
        return True

    def take_mask(self, mask: Tensor | Marks) -> None:
        """Other positions from outside a topology update: values come from weights loaded before, or stay where they are."""
        self.replace_support(Support(mask if isinstance(mask, Marks) else Marks(mask.shape, positions(mask))))

    def replace_support(self, support: Support) -> None:
        """The same for a support that is made already."""
        if self.moments.reach is not None:  # candidates of other masks: the window begins anew
            self.moments.clear()
        old, new, grad = self._support.positions, support.positions, self.parameter.grad
        known, values = (old, self.parameter.data) if self.loaded is None else self.loaded
        self.put(support, placed(values.to(self.parameter.dtype), known, new))
        self.parameter.grad = None if grad is None else placed(grad, old, new)

    def dense(self, tensor: Tensor) -> Tensor:
        """A tensor that is stored as the weights are, in the layer's shape: made anew."""
        return _scattered(tensor, self._support.positions, self.shape)

    def nonzeros(self) -> Marks:
        """Where weights are not zero."""
        known, values = self.unplaced() or (self._support.positions, self.parameter.data)
        return Marks(self.shape, known[values != 0])

    def adopt_weight(self) -> None:
        """Zeros are about to be missing: optimizer state of them goes."""
        kept = self.nonzeros().positions
        for name, slot in shaped_slots(self.optimizer, self.parameter).items():
            self.state()[name] = placed(slot, self._support.positions, kept)

    def put(self, support: Support, values: Tensor) -> None:
        """Take a support and the weights in it."""
        resize(self.parameter, values)
        self._take(support)

    def _take(self, support: Support) -> None:
        self._support = self.moments.support = support

    def take_loaded(self, known: Tensor, values: Tensor) -> Tensor:
        """Weights were loaded, possibly before their masks: keep them until both are known; returns those of this support."""
        self.loaded = (known, values)
        return placed(values, known, self._support.positions)

    def misfit(self) -> int:
        """How many loaded weights lie outside the mask."""
        if self.loaded is None:
            return 0
        known, values = self.loaded
        return int((values[~among(self._support.positions, known)] != 0).count_nonzero())

    def unplaced(self) -> Loaded | None:
        """Weights that were loaded and do not fit the mask, all of them; those that do fit have been placed."""
        if self.loaded is not None and not self.misfit():
            self.loaded = None
        return self.loaded

    def outside(self) -> int:
        """None is stored, but some may be waiting for their masks."""
        return 0 if self.unplaced() is None else self.misfit()

    def stranger_fits(self, weight: Tensor) -> bool:
        """A vector of present entries does; nothing dense can be computed with."""
        if weight.shape != self.parameter.shape:
            raise StateError(
                f"weight of {self.name} has shape {tuple(weight.shape)} in place of {tuple(self.parameter.shape)}: it is stored compact, "
                'as its present entries. Give functional_call those, or use storage="dense"'
            )
        return True

    @property
    def is_clean(self) -> bool:
        """There are no missing weights that somebody could have written to."""
        return True

    def mask_weight(self) -> None:
        """Nothing to mask."""

    def mask_state(self) -> None:
        """Refuse optimizer state of other positions; what was loaded before its masks has served."""
        self.loaded = None
        for name, slot in self.state().items():
            if isinstance(slot, Tensor) and slot.dim() and slot.shape != self.parameter.shape:
                raise StateError(
                    f"the optimizer's {name} of {self.name} has {tuple(slot.shape)} entries where {self.parameter.numel()} weights are "
                    "present: load the states of optimizer and handle that were saved together, with the same storage"
                )

    def follow_layout(self) -> None:
        """A vector has one layout."""

    def receive(self) -> None:
        """Before the step: a gradient that was only marked as overflown is put right; one of a wrong size is refused."""
        grad, self._masked = self.parameter.grad, None
        if grad is not None and grad.shape != self.parameter.shape:
            raise StateError(
                f"the gradient of {self.name} has shape {tuple(grad.shape)}, not {tuple(self.parameter.shape)}"
            )
        if self._overflowed is not None and grad is not None:
            grad[:1] = self._overflowed
        self._overflowed = None

    def rescale(self) -> float:
        """By which factor the gradient was scaled between backward and step."""
        if self.incoming is None or self.incoming.present is None or self.parameter.grad is None:
            return 1.0
        return factor_between(self.incoming.present, self.parameter.grad)

    def witness(self, x: Tensor, grad: Tensor, pattern: SparsePattern) -> Tensor:
        """Take note of a backward pass of a growth window; returns the gradient of present weights.

        That of candidates is computed by itself where they are few: else dense kernels have less to do.
        """
        reach = self.moments.reach
        few = reach is not None and reach.nnz * _FEW <= reach.numel
        seen = ReachedGradient(x, grad, pattern, reach) if reach and few else WholeGradient(x, grad, pattern)
        self._witnessed.append(seen)
        return seen.present

    def _accumulated(self, parameter: Tensor) -> None:
        arriving, self._arriving = self._arriving, None
        now = torch._C._current_graph_task_id()
        # torch.autograd.grad came by too, without ever accumulating.
        uses, self._witnessed = [use for use in self._witnessed if use.pass_number == now], []
        if parameter.grad is None:
            return
        self.average(parameter.grad)
        if arriving is not None and uses:
            if self.incoming is None or arriving[1]:
                self.incoming = StreamedGradient(self.average)
            self.incoming.add(uses)
            # What growth looks at must be seen by a gradient scaler, which lowers its scale and throws the step away.
            if not self.incoming.finite and bool(parameter.grad.isfinite().all()):
                self._overflowed = parameter.grad[:1].clone()
                parameter.grad[:1] = float("inf")
        self._masked = (parameter.grad, parameter.grad._version)

    def _mask_gradient(self, grad: Tensor) -> NoReturn:
        raise AssertionError("compact gradients have nothing to mask")


def compact(sparse: SparseParameter, groups: int, ranks: Ranks) -> None:
    """Let a dense-shaped parameter hold present weights only; gradient and optimizer state follow.

    Gradients whose size changes are nothing for DistributedDataParallel: ranks get the first one's weights and average gradients here.
    """
    if isinstance(sparse, CompactParameter):
        sparse.average, sparse.moments.groups = ranks.average, groups
        return
    where = Marks(sparse.support.shape, sparse.support.marks.positions)
    support, shape = Support(where), sparse.support.shape
    values = _gathered(sparse.parameter.data, where.positions)
    grad = None if sparse.parameter.grad is None else _gathered(sparse.parameter.grad, where.positions)
    for name, slot in sparse.state().items():
        if isinstance(slot, Tensor) and slot.shape == shape:
            sparse.state()[name] = _gathered(slot, where.positions)
    sparse.__class__ = (
        CompactParameter  # the same object: hooks and lists of parameters keep it, as models keep their modules
    )
    assert isinstance(sparse, CompactParameter)
    sparse._become(groups)
    sparse.average = ranks.average
    sparse.put(support, ranks.spread(values))
    sparse.parameter.grad = grad
    sparse.rehook()


def hold(sparse: SparseParameter, support: Support) -> None:
    """The parameter is the vector of the weights of ``support`` already."""
    sparse.__class__ = CompactParameter
    assert isinstance(sparse, CompactParameter)
    sparse._become(1)
    sparse._take(support)
    sparse.rehook()


def expand(sparse: SparseParameter) -> None:
    """The inverse of :func:`compact`."""
    if not isinstance(sparse, CompactParameter):
        return
    if sparse.moments.reach is not None:
        sparse.moments.clear()
    support, where = sparse.support, sparse.support.positions
    dense = Support(support.mask)
    for name, slot in sparse.state().items():
        if isinstance(slot, Tensor) and slot.dim() and slot.shape == sparse.parameter.shape:
            sparse.state()[name] = _scattered(slot, where, support.shape)
    values = _scattered(sparse.parameter.data, where, support.shape)
    grad = None if sparse.parameter.grad is None else _scattered(sparse.parameter.grad, where, support.shape)
    sparse.moments = _exchanged(sparse.moments, Moments)  # type: ignore[assignment]  # it ceases to be compact
    sparse.moments.last = sparse.incoming = None
    sparse.__class__ = SparseParameter  # type: ignore[assignment]
    resize(sparse.parameter, values)
    sparse._take(dense)
    sparse.parameter.grad = grad
    sparse.rehook()
    sparse.mark_clean()


def _exchanged(moments: Moments, kind: type[Kind]) -> Kind:
    fresh = kind.__new__(kind)
    fresh.__dict__.update(moments.__dict__)
    return fresh


def _gathered(dense: Tensor, where: Tensor) -> Tensor:
    return dense.detach().reshape(-1)[where]


def _scattered(values: Tensor, where: Tensor, shape: torch.Size) -> Tensor:
    dense = values.new_zeros(shape.numel())
    dense[where] = values.detach()
    return dense.view(shape)
