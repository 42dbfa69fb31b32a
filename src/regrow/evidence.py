"""Growth evidence for parameters in compact storage: gradients in bands of rows, momentum of present weights as a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regrow.candidates import largest_missing
from regrow.execution.kernels.compact import ReachedGradient, WholeGradient
from regrow.execution.kernels.gradient import bands
from regrow.marks import Marks, placed
from regrow.momentum import ADAM_EPSILON, OWN_COEFFICIENT, Moments, unread_gradient, unread_momentum
from regrow.support import Support
from regrow.topology.score import all_finite

Pass = WholeGradient | ReachedGradient


class StreamedGradient:
    """The gradient of one step, summed over its backward passes, which is computed when it is looked at, a band of rows at a time.

    ``present`` is the part of present weights. ``average`` brings a band to the mean over ranks.
    """

    def __init__(self, average: Callable[[Tensor], Tensor] = lambda tensor: tensor) -> None:
        self._passes: list[list[Pass]] = []
        self._average, self._factor = average, 1.0
        self.present: Tensor | None = None
        self.finite = True

    def add(self, uses: list[Pass]) -> None:
        """One backward pass; a layer may be used several times in it."""
        self._passes.append(uses)
        arrived = self._average(_wide(sum((use.present for use in uses[1:]), uses[0].present)).clone())
        self.present = arrived if self.present is None else self.present.add_(arrived)
        self.finite = self.finite and all(use.finite for use in uses)

    def mul_(self, factor: float) -> StreamedGradient:
        """Multiply by what happened to the gradient between backward and step."""
        self._factor *= factor
        self.present = None if self.present is None else self.present * factor
        return self

    def band(self, rows: slice, shape: torch.Size) -> Tensor:
        """The gradient of some rows."""
        total = self._sum(lambda use: use.band(rows))
        return torch.zeros(rows.stop - rows.start, *shape[1:]) if total is None else total

    def at(self, reach: Support) -> Tensor:
        """The gradient of some weights, in the order of their positions."""
        total = self._sum(lambda use: use.at(reach))
        return torch.zeros(reach.nnz) if total is None else total

    def _sum(self, part: Callable[[Pass], Tensor]) -> Tensor | None:
        total: Tensor | None = None
        for uses in self._passes:
            arrived = sum((part(use) for use in uses[1:]), part(uses[0]))
            total = _wide(arrived).clone() if total is None else total.add_(arrived)
        if total is None:
            return None
        total = self._average(total)
        return total if self._factor == 1.0 else total.mul_(self._factor)


class CompactMoments(Moments):
    """Smoothed gradients of a parameter that holds present weights only.

    Inside a growth window one accumulator (two for Adam) has the layer's dense shape, or is a vector of the weights in ``reach``: the
    present ones and the window's candidates. All else is vectors of present weights, and bands.
    """

    support: Support
    groups = 1
    last: StreamedGradient | None  # type: ignore[assignment]

    @property
    def bands(self) -> list[slice]:
        """The rows in parts: those in which gradients are computed."""
        return bands(self.support.shape, self.groups)

    def band(self, rows: slice) -> BandMoments:
        """Gradient and momentum of all weights of some rows."""
        return BandMoments(self, rows)

    def collect(self, gradient: StreamedGradient, smooth: bool, stride: int = 1) -> None:  # type: ignore[override]
        """Take the gradient of one step, which is streamed into the window's accumulators."""
        self.last = gradient
        if not smooth:
            return
        if self.reach is not None:
            self._gather(gradient.at(self.reach), stride)
            return
        if self.first is None:
            self.first = self._zeros(self.support.shape)
            self.second = None if self.family.second is None else self._zeros(self.support.shape)
        for rows in self.bands:
            second = None if self.second is None else self.second[rows]
            self._smooth(self.first[rows], second, gradient.band(rows, self.support.shape), stride)
        self.seen += stride

    def open(self, gradient: StreamedGradient, stride: int) -> None:
        """Begin a window of candidates with its first gradient: that of present weights, until :meth:`choose`."""
        self.last, self.reach = gradient, self.support
        self._gather(self.gradient(), stride)

    def choose(self, count: int, stride: int) -> None:
        """Go on with present weights and the ``count`` missing ones whose first gradient is largest."""
        assert self.last is not None, "candidates are chosen by the first gradient"
        found, values = largest_missing(self.last, self.support, self.bands, count)
        present, shape = self.gradient(), self.support.shape
        self.reach = Support(self.support.marks | Marks(shape, found))
        where = self.reach.positions
        first = placed(present, self.support.positions, where) + placed(values.to(present.dtype), found, where)
        self.first, self.second, self.seen = None, None, 0
        self._gather(first, stride)

    def _gather(self, gradient: Tensor, stride: int) -> None:
        """Smooth the gradient of the weights in ``reach``."""
        if self.first is None:
            self.first = torch.zeros_like(gradient)
            self.second = None if self.family.second is None else torch.zeros_like(gradient)
        self._smooth(self.first, self.second, gradient, stride)
        self.seen += stride

    def skip(self) -> None:
        """A step of the window without any gradient."""
        self.last = StreamedGradient()

    def gradient(self) -> Tensor:
        """That of present weights."""
        if self.last is None:
            raise unread_gradient()
        return self._zeros(self.support.nnz) if self.last.present is None else self.last.present

    def finite(self) -> bool:
        """Whether all that was seen of missing weights is."""
        kept = (moment for moment in (self.first, self.second) if moment is not None)
        return (self.last is None or self.last.finite) and all(map(all_finite, kept))

    def at(self, moment: Tensor | None, beta: int, positions: Tensor) -> Tensor | None:
        """The window's first (0) or second (1) moment at some positions, brought to the bias of the optimizer's own."""
        return None if moment is None else self.unbiased(self._seen_of(moment, positions), beta)

    def unbiased(self, moment: Tensor, beta: int) -> Tensor:
        """A part of the window's moments as the optimizer would have it."""
        return moment if self.family.second is None else moment * self._bias(float(self.group()["betas"][beta]))

    def seeds_at(self, state: str, positions: Tensor) -> dict[str, Tensor] | None:
        """Optimizer state for weights about to grow at ``positions``, as a growth rule asks for it (`Grow.state`)."""
        wanted = state == "seed" or (state == "normalised" and self.host.second is not None)
        if not wanted:
            return None
        if self.host is not self.family:
            if self.host.first is None or self.first is None:
                return {}
            scale = self._bias(OWN_COEFFICIENT) / self.host.paper_scale(self.group())
            return {self.host.first: self._seen_of(self.first, positions) * scale}
        moments = ((self.family.first, self.first, 0), (self.family.second, self.second, 1))
        found = {slot: self.at(moment, beta, positions) for slot, moment, beta in moments if slot is not None}
        return {slot: moment for slot, moment in found.items() if moment is not None}

    def keep_at(self, positions: Tensor, entries: Tensor) -> None:
        """Carry the momentum of weights about to be removed over into the window, which stays open."""
        betas = self.group()["betas"] if self.family.second is not None else (0.0, 0.0)
        slots = ((self.family.first, self.first, betas[0]), (self.family.second, self.second, betas[1]))
        for slot, mine, beta in slots:
            theirs = self.state().get(slot) if slot else None
            if mine is not None and theirs is not None:
                mine.view(-1)[positions] = theirs[entries].to(mine.dtype) / self._bias(float(beta))

    def _combined(self, slot: str | None, missing: Tensor | None) -> Tensor:
        """Of present weights: the optimizer's, or the window's where it keeps none."""
        present = self.state().get(slot) if slot else None
        if present is None:
            return self._zeros(self.support.nnz) if missing is None else missing
        return present if missing is None else present.to(missing.dtype)

    def _first(self) -> Tensor | None:
        return self.at(self.first, 0, self.support.positions)

    def _second(self) -> Tensor | None:
        return self.at(self.second, 1, self.support.positions)

    def _seen_of(self, moment: Tensor, positions: Tensor) -> Tensor:
        """What the window saw at some positions: nothing but zeros where it did not look."""
        return moment.view(-1)[positions] if self.reach is None else placed(moment, self.reach.positions, positions)

    def rows_of(self, moment: Tensor, rows: slice) -> Tensor:
        """What the window saw in some rows."""
        if self.reach is None:
            return moment[rows]
        which, places = self.reach.band(rows)
        found = moment.new_zeros((rows.stop - rows.start, *self.support.shape[1:]))
        found.view(-1)[places] = moment[which]
        return found

    def _zeros(self, size: int | torch.Size) -> Tensor:
        return torch.zeros(size, dtype=_wide_type(self.parameter))


@dataclass(frozen=True)
class BandMoments:
    """Gradient and momentum of all weights of some rows, as of a dense layer."""

    moments: CompactMoments
    rows: slice

    def gradient(self) -> Tensor:
        """The gradient of the last step."""
        if self.moments.last is None:
            raise unread_gradient()
        return self.moments.last.band(self.rows, self.moments.support.shape)

    def momentum(self) -> Tensor:
        """The optimizer's where weights are present, the window's where they are missing."""
        mine = self.moments
        if not mine.declared & {"momentum", "present momentum"}:
            raise unread_momentum()
        first = self._combined(mine.family.first, mine.first, 0)
        return first if mine.family.second is None else first / (self.second_moment().sqrt() + ADAM_EPSILON)

    def second_moment(self) -> Tensor:
        """The Adam family's running mean of squared gradients."""
        self.moments.require_second()
        return self._combined(self.moments.family.second, self.moments.second, 1)

    def _combined(self, slot: str | None, window: Tensor | None, beta: int) -> Tensor:
        mine = self.moments
        shape = (self.rows.stop - self.rows.start, *mine.support.shape[1:])
        present = mine.state().get(slot) if slot else None
        if window is not None:
            found = mine.unbiased(mine.rows_of(window, self.rows), beta).clone()
        else:
            found = torch.zeros(shape, dtype=_wide_type(mine.parameter) if present is None else present.dtype)
        if present is not None:
            which, places = mine.support.band(self.rows)
            found.view(-1)[places] = present[which].to(found.dtype)
        return found


def _wide_type(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(_wide_type(tensor))
