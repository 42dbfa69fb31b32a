"""Median errors of the sensitivity experiment beside the paper's, which gives them with its means."""

from __future__ import annotations

import statistics

from regrow.experiments.analyses.material import Material
from regrow.experiments.experiment import Cell, split_label
from regrow.experiments.tables import markdown, number
from regrow.experiments.targets import SENSITIVITY_MEDIANS


def describe(material: Material) -> str:
    """Per setting the median over the runs that learned, ours and the paper's."""
    rows = []
    for line in material.table:
        errors = [float(row["test_error"]) for row in line.runs(material.rows)]
        if errors:
            ours, paper = f"{statistics.median(errors):.3f}", number(published(line.cell))
            rows.append((line.cell.model, line.cell.label, str(len(errors)), ours, paper, line.computed))
    header = ("model", "setting", "n", "median error %", "paper", "execution")
    return "Median errors.\n\n" + markdown(header, rows) if rows else ""


def published(cell: Cell) -> float | None:
    """The paper's median of a setting."""
    parameter, value, series = split_label(cell.label)
    pair = SENSITIVITY_MEDIANS.get(cell.model, {}).get(parameter, {}).get(value)
    return None if pair is None else pair[series in ("dense", "linear")]
