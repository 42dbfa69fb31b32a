"""Error against time where redistribution weighs momentum per cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regrow.experiments.rows import Row
from regrow.experiments.statistics import summarise
from regrow.experiments.tables import markdown, with_se

if TYPE_CHECKING:
    from regrow.experiments.extras import Material


def describe(material: Material) -> str:
    """Per setting: error, multiply-accumulates kept, processor seconds of a run."""
    rows = []
    for line in material.table:
        own = line.runs(material.rows)
        rows.append(
            (
                line.cell.model,
                line.cell.label,
                str(line.summary.n),
                with_se(line.summary.mean, line.summary.se),
                _mean(own, "macs_share", ".2f", 100),
                _mean(own, "processor_seconds", ".1f"),
                line.execution,
            )
        )
    header = ("model", "shares", "n", "error % ± SE", "MACs kept % ± SE", "processor seconds ± SE", "execution")
    head = (
        "Redistribution by momentum per cost: shares c_i / cost_i^lambda, cost = multiply-accumulates per weight.\n\n"
    )
    return head + markdown(header, rows) if rows else ""


def _mean(rows: Sequence[Row], column: str, form: str, scale: float = 1) -> str:
    """Mean ± SE of a column over the runs that have it."""
    values = [scale * float(row[column]) for row in rows if row.get(column)]
    if not values:
        return "not measured"
    found = summarise(values)
    return with_se(found.mean, found.se, form)
