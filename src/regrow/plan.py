"""The table before training: which layers are sparse and why, how dense, how much work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from regrow.scope import VECTOR, Decision, Layer
from regrow.text import as_html, as_text
from regrow.uses import uses_per_weight

if TYPE_CHECKING:
    from regrow.handle import Handle
    from regrow.network import SparseNetwork

PRICE = "ns/weight"
"""The column of measured costs."""


@dataclass(frozen=True)
class Row:
    """One parameter of the plan; ``cost`` is milliseconds per weight, where they were measured (``costs="measured"``)."""

    layer: str
    kind: str
    shape: tuple[int, ...]
    sparse: bool
    reason: str
    nonzeros: int
    density: float
    macs: int | None
    cost: float | None = None


@dataclass(frozen=True)
class Plan:
    """The rows, and a table when printed. MACs count multiply-accumulates of one sample's forward pass through the present weights."""

    rows: tuple[Row, ...]
    method: str
    compute: str | None = None

    def __iter__(self) -> Iterator[Row]:
        """The rows in the order of the model."""
        return iter(self.rows)

    @property
    def density(self) -> float:
        """Share of weights present among the sparse layers."""
        sparse = [r for r in self.rows if r.sparse]
        return sum(r.nonzeros for r in sparse) / max(1, sum(_size(r) for r in sparse))

    @property
    def dense_weights(self) -> int:
        """Weights of the layers that stay dense, without biases and norms: what the budget does not count."""
        return sum(r.nonzeros for r in self.weights() if not r.sparse)

    @property
    def macs_share(self) -> float | None:
        """Multiply-accumulates of the sparse layers' present weights, as a share of all their weights'; None where none were counted."""
        counted = [(r.macs, r.density) for r in self.rows if r.sparse and r.macs is not None]
        return sum(macs for macs, _ in counted) / sum(macs / density for macs, density in counted) if counted else None

    def __rich__(self) -> Any:
        """The table for a terminal or notebook."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(
            title=f"{self.method}: {self.density:.2%} of {sum(_size(r) for r in self.rows if r.sparse):,} weights",
            caption="\n".join(self.notes()),
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        counted = ["MACs"] if any(r.macs is not None for r in self.rows) else []
        priced = [PRICE] if any(r.cost is not None for r in self.rows) else []
        for column in ("layer", "shape", "", "density", "non-zeros", *counted, *priced):
            whole = column not in ("layer", "")
            table.add_column(column, justify="right" if whole else "left", no_wrap=whole, overflow="fold")
        for r in self.weights():
            macs = ["" if r.macs is None else f"{r.macs:,}"] if counted else []
            shape, status = "x".join(map(str, r.shape)), "sparse" if r.sparse else "dense"
            price = [nanoseconds(r.cost)] if priced else []
            table.add_row(escape(r.layer), shape, status, f"{r.density:.2%}", f"{r.nonzeros:,}", *macs, *price)
        return table

    def weights(self) -> list[Row]:
        """The rows of the table: all but biases and norms, which would drown them."""
        return [r for r in self.rows if r.sparse or r.reason != VECTOR]

    def notes(self) -> list[str]:
        """What stands below the table: MACs in all, biases and norms in one line, why layers are dense."""
        notes = (
            []
            if self.compute is None
            else [f"budget in compute: at most {self.compute}; {self.macs_share:.2%} of dense MACs"]
        )
        counted = [r.macs for r in self.rows if r.macs is not None]
        if counted:
            dense = sum(round(r.macs / r.density) for r in self.rows if r.macs is not None and r.nonzeros)
            share = f", {sum(counted) / dense:.2%} of {dense:,} dense" if dense else ""
            notes.append(f"{sum(counted):,} multiply-accumulates (MACs) a sample{share}")
        if any(r.cost is not None for r in self.rows):
            notes.append(
                f"{PRICE}: forward + backward of a batch on sparse kernels per present weight, timed at the start"
            )
        vectors = [r for r in self.rows if not r.sparse and r.reason == VECTOR]
        if vectors:
            notes.append(f"dense besides: {sum(map(_size, vectors)):,} numbers in {len(vectors)} biases and norms")
        reasons = dict.fromkeys(r.reason for r in self.weights() if not r.sparse)
        for reason in reasons:
            layers = [r.layer for r in self.weights() if not r.sparse and r.reason == reason]
            more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
            notes.append(f"dense, {reason}: {', '.join(layers[:3])}{more}")
        return notes

    def __str__(self) -> str:
        """The table as text."""
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self.__rich__())


def build_plan(
    model: nn.Module,
    method: str,
    decisions: Sequence[Decision],
    network: SparseNetwork,
    example: Tensor | tuple[Any, ...] | None,
) -> Plan:
    """One row per dense parameter and per sparse layer, in the order of the model."""
    uses = uses_per_weight(model, example) if example is not None else {}
    prices = (network.prices.state() if network.prices is not None else None) or {}
    parameters = {name.removesuffix(".weight"): parameter for name, parameter in model.named_parameters()}
    by_parameter: dict[str, list[Layer]] = {}
    for layer in network.layers:
        by_parameter.setdefault(layer.parameter_name.removesuffix(".weight"), []).append(layer)
    rows = []
    for decision in decisions:
        per = uses.get(parameters[decision.name])
        if decision.sparse:
            for layer in by_parameter[decision.name]:
                shape, count = tuple(layer.shape), network.present(layer)
                rows.append(replace(_row(layer.name, decision, shape, count, per), cost=prices.get(layer.name)))
        else:
            rows.append(_row(decision.name, decision, decision.shape, math.prod(decision.shape), per))
    compute = network.allowance.name if network.settings.compute is not None else None
    return Plan(tuple(rows), method, compute)


def _row(name: str, decision: Decision, shape: tuple[int, ...], count: int, per: float | None) -> Row:
    macs = None if per is None else round(per * count)
    return Row(name, decision.kind, shape, decision.sparse, decision.reason, count, count / math.prod(shape), macs)


def draw(handle: Handle) -> Any:
    """Density of each layer and flow of weights between layers over the updates so far, as a matplotlib figure."""
    from regrow.report.sketch import sketch

    return sketch(handle)


def nanoseconds(cost: float | None) -> str:
    """A measured cost, which is in milliseconds, for tables.

    Example:
        >>> nanoseconds(1.234e-4)
        '123'
    """
    return "" if cost is None else f"{1e6 * cost:.3g}" if cost < 1e-3 else f"{1e6 * cost:,.0f}"


def _size(row: Row) -> int:
    return math.prod(row.shape)
