"""The growth window: in which steps gradients of missing weights are needed, and what becomes of them.

The last K steps before an update, and of these every s-th, the last one among them.
"""

from __future__ import annotations

import math

import torch
from torch.optim import Optimizer

from regrow.candidates import candidate_counts
from regrow.compact import CompactParameter
from regrow.momentum import window_length
from regrow.network import SparseNetwork
from regrow.parameter import SparseParameter


class GrowthWindow:
    """Opens K steps before a topology update and closes with it."""

    def __init__(self, network: SparseNetwork) -> None:
        self.network = network
        self.parameters, settings, self.ranks = network.parameters, network.settings, network.ranks
        self.settings = settings
        self._next_due: int | None = None
        self._exhausted = False
        # Asked for in every step, and slow to put together from a method's pieces.
        self._needs = settings.method.needs

    @property
    def is_open(self) -> bool:
        """Whether the coming backward must deliver gradients of missing weights."""
        return any(sparse.collecting for sparse in self.parameters)

    @property
    def smooths(self) -> bool:
        """Whether gradients are collected into momentum, or only the last one counts."""
        return bool(self._needs & {"momentum", "present momentum"})

    def length(self, step: int) -> int:
        """K in steps; 0 if the method never looks at missing weights."""
        clock, needs = self.settings.clock, self._needs
        if clock is None:
            return 0
        lengths = [1 if "gradient" in needs else 0]
        for sparse in self.parameters:
            family = sparse.moments.family
            if "momentum" in needs or ("present momentum" in needs and family.first is None):
                coefficient = family.coefficient(sparse.group())
                lengths.append(window_length(coefficient, self.settings.window_tolerance, clock.interval(step)))
        return max(lengths)

    @property
    def stride(self) -> int:
        """Every how many steps of a window evidence is collected, counted back from the update; every one with full momentum."""
        return self.settings.window_stride if self.settings.window_tolerance > 0 else 1

    def fraction(self, step: int) -> float:
        """Share of the steps around ``step`` in which evidence is collected."""
        clock = self.settings.clock
        if clock is None or self._exhausted:
            return 0.0
        return min(1.0, math.ceil(self.length(step) / self.stride) / clock.interval(step))

    def always_open(self, step: int) -> bool:
        """Whether the window spans whole intervals, so that momentum is kept across updates; candidates are chosen anew after each."""
        clock = self.settings.clock
        whole = clock is not None and self.smooths and self.length(step) >= clock.interval(step)
        return whole and not self.settings.window_candidates

    def look_ahead(self, step: int) -> None:
        """Open or close for the step after ``step`` finished ones."""
        clock = self.settings.clock
        if clock is None or not self._needs:
            return
        coming = step if clock.when.phase == "instead" else step + 1
        if not self._exhausted and (self._next_due is None or self._next_due < coming):
            self._next_due = clock.next_due(coming)
            self._exhausted = self._next_due is None
        left = None if self._next_due is None else self._next_due - coming
        inside = left is not None and left < self.length(step) and left % self.stride == 0
        for sparse in self.parameters:
            sparse.collecting = inside
            if self._next_due is None:
                sparse.moments.clear()

    def forget_schedule(self) -> None:
        """Look the next update up anew, after the step counter was moved."""
        self._next_due, self._exhausted = None, False

    def collect(self, optimizer: Optimizer) -> None:
        """Average the kept gradients over ranks, give them the scaling present weights got, and smooth them."""
        if self.ranks.size > 1:
            for sparse in self.parameters:
                if sparse.is_compact:  # averaged when it is looked at
                    continue
                wide = torch.promote_types(sparse.parameter.dtype, torch.float32)
                empty = torch.zeros_like(sparse.parameter, dtype=wide) if sparse.incoming is None else sparse.incoming
                sparse.incoming = self.ranks.average(empty)
        # A fused optimizer unscales inside its step: its gradients are still multiplied by grad_scale here.
        scale = getattr(optimizer, "grad_scale", None)
        unscale = 1.0 if scale is None else 1.0 / float(scale)
        factors = [sparse.rescale() for sparse in self.parameters]
        usual = next((factor for factor in factors if math.isfinite(factor)), 1.0)
        for sparse, factor in zip(self.parameters, factors, strict=True):
            if sparse.incoming is None or sparse.parameter.grad is None:
                sparse.moments.skip()
                continue
            factor = unscale * (factor if math.isfinite(factor) else usual)
            if factor != 1.0:
                sparse.incoming.mul_(factor)
        self._choose([sparse for sparse in self.parameters if self._take(sparse)])

    def _take(self, sparse: SparseParameter) -> bool:
        """Take in the gradient of this step, if there is one; whether a window of candidates begins with it."""
        if sparse.parameter.grad is None:
            return False
        if self.settings.window_candidates and sparse.moments.first is None and isinstance(sparse, CompactParameter):
            if sparse.incoming is not None:
                sparse.moments.open(sparse.incoming, self.stride)
            return sparse.incoming is not None
        if sparse.incoming is not None:
            sparse.moments.collect(sparse.incoming, self.smooths, self.stride)
        return False

    def _choose(self, opened: list[SparseParameter]) -> None:
        """Candidates for windows that have just begun, now that the momentum of all layers is known."""
        if opened:
            assert self._next_due is not None, "a window opens before an update"
            counts = candidate_counts(self.network, self._next_due)
            for sparse in opened:
                assert isinstance(sparse, CompactParameter)
                sparse.moments.choose(counts.get(sparse.name, 0), self.stride)

    def close(self, step: int) -> None:
        """After an update: forget the window, unless it stays open."""
        stays_open = self.always_open(step)
        for sparse in self.parameters:
            if not stays_open:
                sparse.moments.clear()
            sparse.moments.last = None
