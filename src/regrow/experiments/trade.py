"""Error against time where redistribution weighs momentum per cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regrow.experiments.rows import same_setting
from regrow.experiments.statistics import summarise
from regrow.experiments.tables import markdown, with_se

if TYPE_CHECKING:
    from regrow.experiments.extras import Material


def describe(material: Material) -> str:
    """Per setting: error, multiply-accumulates kept, processor seconds of a run."""
    rows = []
    for line in material.table:
        own = [row for row in material.rows if same_setting(line.cell.config, row)]
        kept = summarise([100 * float(row["macs_share"]) for row in own if row.get("macs_share")])
        seconds = summarise([float(row["processor_seconds"]) for row in own])
        rows.append(
            (
                line.cell.model,
                line.cell.label,
                str(line.summary.n),
                with_se(line.summary.mean, line.summary.se),
                with_se(kept.mean, kept.se, ".2f"),
                with_se(seconds.mean, seconds.se, ".1f"),
            )
        )
    header = ("model", "shares", "n", "error % ± SE", "MACs kept % ± SE", "processor seconds ± SE")
    head = (
        "Redistribution by momentum per cost: shares c_i / cost_i^lambda, cost = multiply-accumulates per weight.\n\n"
    )
    return head + markdown(header, rows) if rows else ""
