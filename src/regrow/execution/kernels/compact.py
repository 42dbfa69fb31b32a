"""Passes of layers whose weight holds present entries only, in mask order: gradients are as short, nothing has the layer's dense shape.

In a growth window a witness is handed what gradients of missing weights are computed from: all of them, band by band, or some.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from regrow.execution.kernels import passes
from regrow.execution.kernels.context import Context, keep_origin, once_differentiable
from regrow.execution.kernels.gradient import (
    band_gradient,
    bands,
    dense_weight_gradient,
    observed_backward,
    watched,
)
from regrow.execution.kernels.layout import empty_vector, in_rows, to_chwn, to_ordinary
from regrow.execution.kernels.pattern import SparsePattern
from regrow.marks import among, placed
from regrow.support import Support
from regrow.vectors import still

Witness = Callable[[Tensor, Tensor, SparsePattern], Tensor]
"""Takes note of a pass, from its input and the gradient of its output; returns the gradient of present weights."""


class WholeGradient:
    """A layer's weight gradient of one backward pass, missing weights included: itself or what it follows from, whichever is smaller."""

    def __init__(self, x: Tensor, grad: Tensor, pattern: SparsePattern) -> None:
        self.pattern = pattern
        self._pass: tuple[Tensor, Tensor] | None = (x, grad)
        self.pass_number = torch._C._current_graph_task_id()
        self.present = x.new_empty(pattern.support.nnz)
        self._whole: Tensor | None = None
        full = len(pattern.shape) > 2 and pattern.support.nnz == pattern.support.numel
        if full:  # as with dense storage: native kernels are faster where channels are few
            passes.weight_gradient(self.present, x, grad, pattern)
            self._whole = self.present.view(pattern.shape)
        elif len(self.bands) == 1 and pattern.support.numel <= x.numel() + grad.numel():
            self._whole = dense_weight_gradient(x, grad, pattern.shape, pattern.geometry)
        if self._whole is not None:
            self._pass = None
        self.finite = True
        if full:
            self.finite = _all_finite(self.present)
        else:
            self._note_present()

    @property
    def bands(self) -> list[slice]:
        """The rows in parts."""
        return bands(self.pattern.shape, self.pattern.geometry.groups)

    def band(self, rows: slice) -> Tensor:
        """The gradient of some rows, as `bands` splits them."""
        if self._pass is None:
            assert self._whole is not None
            return self._whole[rows]
        x, grad = self._pass
        shape = torch.Size([rows.stop - rows.start, *self.pattern.shape[1:]])
        return band_gradient(x, grad[:, rows], shape, self.pattern.geometry)

    def at(self, reach: Support) -> Tensor:
        """The gradient of some weights, in the order of their positions."""
        parts = ((self.band(rows), reach.band(rows)[1]) for rows in self.bands)
        return torch.cat([part.reshape(-1).index_select(0, places) for part, places in parts])

    def _note_present(self) -> None:
        for rows in self.bands:
            which, places = self.pattern.support.band(rows)
            part = self.band(rows)
            self.present[which] = part.reshape(-1).index_select(0, places)
            self.finite = self.finite and _all_finite(part)


class ReachedGradient:
    """A layer's weight gradient of one backward pass where ``reach`` is, all present weights among it: computed there alone."""

    def __init__(self, x: Tensor, grad: Tensor, pattern: SparsePattern, reach: Support) -> None:
        self.pass_number = torch._C._current_graph_task_id()
        self.reach, self._values = reach, x.new_empty(reach.nnz)
        run = observed_backward if watched() else passes.backward
        run(x, grad, None, SparsePattern(reach, pattern.geometry), self._values, False)
        support = pattern.support
        mine = reach.derive(("present", support.version), lambda: among(support.positions, reach.positions))
        self.present, self.finite = self._values[mine], _all_finite(self._values)

    def band(self, rows: slice) -> Tensor:
        """The gradient of some rows; zero where it was not computed."""
        which, places = self.reach.band(rows)
        found = self._values.new_zeros((rows.stop - rows.start, *self.reach.shape[1:]))
        found.view(-1)[places] = self._values[which]
        return found

    def at(self, reach: Support) -> Tensor:
        """The gradient of some weights; zero where it was not computed."""
        return self._values if reach is self.reach else placed(self._values, self.reach.positions, reach.positions)


class _CompactContext(Context, Protocol):
    saved_tensors: tuple[Tensor, Tensor]
    pattern: SparsePattern
    witness: Witness | None
    has_bias: bool


class CompactFunction(torch.autograd.Function):
    """One layer: its weight is the vector of present entries, and so is the gradient."""

    @staticmethod
    def forward(
        ctx: _CompactContext,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        pattern: SparsePattern,
        witness: Witness | None,
    ) -> Tensor:
        """y = conv(x, weight, bias) over the pattern's entries."""
        given, x = x, passes.taken(x, pattern)
        if watched():
            y = torch.ops.regrow.sparse_forward(x, weight, bias, *pattern.operands())
        else:
            y, _ = passes.forward(x, weight, bias, pattern)
        ctx.save_for_backward(x, weight)
        keep_origin(ctx, given, x)
        ctx.pattern, ctx.witness, ctx.has_bias = pattern, witness, bias is not None
        return y

    @staticmethod
    @once_differentiable
    @still()
    def backward(ctx: _CompactContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of input, present weights and bias."""
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad = to_ordinary(grad) if in_rows(x) else to_chwn(grad)
        dw = out = None
        if wants_weight:
            if ctx.witness is None:
                dw = out = empty_vector(ctx.pattern.support.nnz, weight)
            else:
                dw = ctx.witness(x, grad, ctx.pattern)
        run = observed_backward if watched() else passes.backward
        dx, db = run(x, grad, weight if wants_x else None, ctx.pattern, out, wants_bias and ctx.has_bias)
        return dx, dw, db, None, None


def _all_finite(tensor: Tensor) -> bool:
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())
