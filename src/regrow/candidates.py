"""Candidates of a growth window: the missing weights that are looked at through the whole window, chosen by its first gradient.

With ``window_candidates=c`` a layer has c times as many of them as it is expected to grow at most. Momentum is kept for these alone:
no accumulator of the layer's dense shape is made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from regrow.marks import positions
from regrow.support import NARROW, Support
from regrow.topology.redistribute import allocate
from regrow.topology.select import top
from regrow.topology.view import LayerView

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.parameter import SparseParameter


class Banded(Protocol):
    """A gradient of all weights, a band of rows at a time."""

    def band(self, rows: slice, shape: torch.Size) -> Tensor: ...  # noqa: D102


def largest_missing(gradient: Banded, support: Support, bands: Sequence[slice], count: int) -> tuple[Tensor, Tensor]:
    """Positions, ascending, and gradients of the ``count`` missing weights with the largest |gradient|; ties go to the lowest position.

    A running choice: what is not above the least of ``count`` weights that were found before cannot be among them.
    """
    width = support.numel // max(1, support.shape[0])
    places, values, least = torch.empty(0, dtype=torch.int64), torch.empty(0), -1.0
    for rows in bands if count > 0 else ():
        part = gradient.band(rows, support.shape).reshape(-1)
        size = part.abs()
        size[support.band(rows)[1]] = -1.0
        found = positions(size > least)
        places, values = (
            torch.cat([places, found + rows.start * width]),
            torch.cat([values.to(part.dtype), part[found]]),
        )
        if len(places) > count and (len(places) > 2 * count or rows.stop == support.shape[0]):
            kept = top(values.abs(), count).sort().values
            places, values = places[kept], values[kept]
            least = float(values.abs().min())
    return places, values


def candidate_counts(network: SparseNetwork, due: int) -> dict[str, int]:
    """How many candidates each parameter has in the window before the update at step ``due``."""
    growth, share = expected_growth(network, due), network.settings.window_candidates
    missing = {sparse.name: sparse.support.numel - sparse.support.nnz for sparse in network.parameters}
    return {name: min(missing[name], math.ceil(share * count)) for name, count in growth.items()}


def window_bytes(network: SparseNetwork, step: int) -> int:
    """Bytes of momentum, and of candidates' positions, that the next window after ``step`` will hold; 0 where there is none to come.

    Candidates are counted by the shares that layers have now; lists that kernels keep of them are not.
    """
    clock = network.settings.clock
    due = None if clock is None or "momentum" not in network.settings.method.needs else clock.next_due(step + 1)
    if due is None:
        return 0
    counts = candidate_counts(network, due) if network.settings.window_candidates else None
    return sum(_bytes(sparse, counts) for sparse in network.parameters if sparse.parameter.requires_grad)


def _bytes(sparse: SparseParameter, counts: dict[str, int] | None) -> int:
    support, moments = sparse.support, 1 if sparse.moments.family.second is None else 2
    size = moments * torch.promote_types(sparse.parameter.dtype, torch.float32).itemsize
    if counts is None or not sparse.is_compact:
        return support.numel * size
    rows = support.shape[0]
    column = 2 if support.numel // max(1, rows) <= NARROW else 4
    return (support.nnz + counts[sparse.name]) * (size + column) + 8 * (rows + 1)


def expected_growth(network: SparseNetwork, due: int) -> dict[str, int]:
    """How many weights each parameter may grow at step ``due``: its part of the freed budget by the shares of now, or what it loses itself.

    The larger of both, as shares move while the window is open. Growth over the whole network may end in any layer.
    """
    method, progress = network.settings.method, network.settings.progress(due)
    views = [network.view(i) for i, layer in enumerate(network.layers) if layer.parameter.requires_grad]
    ends = [view.nnz for view in views]
    if method.density is not None:
        counts = network.counts_at(network.settings.density_at(progress))
        ends = [counts[view.index] for view in views]
    for view in views:
        view.removed = math.ceil(method.rate(progress) * view.nnz)
    grown = _grown(
        network, views, [max(0, end - view.nnz + view.removed) for end, view in zip(ends, views, strict=True)]
    )
    return {network.layers[view.index].parameter_name: count for view, count in zip(views, grown, strict=True)}


def _grown(network: SparseNetwork, views: list[LayerView], own: list[int]) -> list[int]:
    method = network.settings.method
    if method.grow is not None and method.grow.select == "global":
        return [sum(own)] * len(own)
    if method.redistribute is None:
        return own
    room = [view.missing + view.removed for view in views]
    shared = allocate(method.redistribute.shares(views), sum(own), room, method.redistribute.overflow)
    return [max(pair) for pair in zip(shared, own, strict=True)]
