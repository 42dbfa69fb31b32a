"""Error against time where redistribution weighs momentum per cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from regrow.analysis.statistics import Z95, Summary, summarise
from regrow.experiments.analyses.material import Material
from regrow.experiments.figures import ERROR
from regrow.experiments.rows import Row
from regrow.experiments.tables import Line, markdown, with_se
from regrow.figure import blank, save


def describe(material: Material) -> str:
    """Per setting: error, multiply-accumulates kept, processor seconds of a run; and a figure of error against seconds per model.

    Work and time count for all runs that came to their end: a few hundred steps of a large network may be no better than guessing.
    """
    rows = []
    for line in material.table:
        own = [row for row in line.all_runs(material.rows) if math.isfinite(float(row["test_error"]))]
        rows.append(
            (
                line.cell.model,
                line.cell.label,
                str(len(own)) if len(own) == line.summary.n else f"{len(own)}, {line.summary.n} learned",
                with_se(line.summary.mean, line.summary.se),
                _mean(_column(own, "macs_share", 100), ".2f"),
                _mean(_column(own, "processor_seconds"), ".1f"),
                line.computed,
            )
        )
    header = ("model", "shares", "n", "error % ± SE", "MACs kept % ± SE", "processor seconds ± SE", "execution")
    head = (
        "Redistribution by momentum per cost: shares c_i / cost_i^lambda, cost = multiply-accumulates per weight.\n\n"
    )
    for model in dict.fromkeys(line.cell.model for line in material.table):
        draw([line for line in material.table if line.cell.model == model], material.rows, material.results)
    return head + markdown(header, rows) if rows else ""


def draw(lines: Sequence[Line], rows: Sequence[Row], folder: Path) -> list[Path]:
    """One model's settings as points, error over processor seconds; those computed alike are joined along rising lambda."""
    timed = [(line, _column(line.runs(rows), "processor_seconds")) for line in lines]
    timed = [(line, time) for line, time in timed if time.n]
    if not timed:
        return []
    figure = blank(6.0, 4.0)
    axes = figure.subplots()
    for execution in dict.fromkeys(line.execution for line, _ in timed):
        own = [(line, time) for line, time in timed if line.execution == execution]
        x, y = [time for _, time in own], [line.summary for line, _ in own]
        bars = {name: [Z95 * (found.se or 0.0) for found in of] for name, of in (("xerr", x), ("yerr", y))}
        axes.errorbar([t.mean for t in x], [e.mean for e in y], **bars, marker="o", ms=4, capsize=2, label=execution)
        for number, (line, time) in enumerate(own):
            place, aside = (time.mean, line.summary.mean), (5, -13 if number % 2 else 5)  # neighbours may lie close
            axes.annotate(line.cell.label, place, xytext=aside, textcoords="offset points", fontsize=8)
    axes.set(xlabel="processor seconds of a run, bars: 95% interval", ylabel=ERROR)
    axes.set_title(f"{lines[0].cell.model}: momentum per cost", fontsize=9, loc="left")
    axes.margins(x=0.18, y=0.1)  # room for names beside the outermost points
    axes.legend(fontsize=7)
    axes.grid(alpha=0.25)
    return save(figure, folder / f"trade-{lines[0].cell.model}")


def _column(rows: Sequence[Row], name: str, scale: float = 1) -> Summary:
    """A column over the runs that have it."""
    return summarise([scale * float(row[name]) for row in rows if row.get(name)])


def _mean(found: Summary, form: str) -> str:
    return with_se(found.mean, found.se, form) if found.n else "not measured"
