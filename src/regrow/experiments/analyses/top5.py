"""Top-5 accuracy on ImageNet beside the paper's."""

from __future__ import annotations

import re

from regrow.analysis.statistics import summarise
from regrow.experiments.analyses.material import Material
from regrow.experiments.experiment import Cell
from regrow.experiments.tables import markdown, number, with_se
from regrow.experiments.targets import IMAGENET_TOP5


def describe(material: Material) -> str:
    """Per setting our top-5 accuracy and the paper's, in percent; rows store it as a share."""
    rows = []
    for line in material.table:
        values = [100 * float(row["test_top5"]) for row in line.runs(material.rows) if row.get("test_top5")]
        found = summarise(values)
        ours = with_se(found.mean, found.se, ".2f") if values else "not measured"
        weights, paper = f"{100 * line.cell.density:.3g}", number(published(line.cell), ".1f")
        rows.append((line.cell.label, weights, str(found.n), ours, paper, line.computed))
    header = ("setting", "weights %", "n", "top-5 accuracy % ± SE", "paper", "execution")
    return "Top-5 accuracy.\n\n" + markdown(header, rows) if rows else ""


def published(cell: Cell) -> float | None:
    """The paper's top-5 accuracy of a setting, which is known by its nominal percentage; None for the ablation's settings."""
    kind, percent = cell.label.removeprefix("partially dense, "), float(round(100 * cell.density))
    nominal = re.fullmatch(r"fully sparse \((\d+)%\)", cell.label)
    if nominal:
        kind, percent = "fully sparse", float(nominal[1])
    return IMAGENET_TOP5.get("partially dense" if kind == "sparse-momentum" else kind, {}).get(percent)
