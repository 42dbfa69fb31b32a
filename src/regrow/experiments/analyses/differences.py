"""The ablation as the paper prints it: differences to its first row."""

from __future__ import annotations

from collections.abc import Sequence

from regrow.experiments.analyses.material import Material
from regrow.experiments.experiment import Cell
from regrow.experiments.tables import Line, count, markdown, with_se


def describe(material: Material) -> str:
    """Rows after the first as differences to it, as the paper prints them; SE is that of the row.

    Only what was computed in the same way is subtracted.
    """
    rows = []
    for model in dict.fromkeys(line.cell.model for line in material.table):
        own = [line for line in material.table if line.cell.model == model]
        ways = dict.fromkeys(line.execution for line in own)
        for way in ways:
            name = model if len(ways) == 1 else f"{model} ({way})"
            rows += [(name, *row) for row in _to_first([line for line in own if line.execution == way])]
    if not rows:
        return ""
    head = "Differences to momentum / momentum, in points of error; SE is that of the row alone, as the paper prints it.\n\n"
    return head + markdown(("model", "redistribution / growth", "n", "ours ± SE", "paper ± SE"), rows)


def _to_first(lines: Sequence[Line]) -> list[tuple[str, str, str, str]]:
    """Setting, runs, ours and the paper's; nothing without the setting to which the others are compared."""
    first = lines[0]
    if first.cell.label != "momentum / momentum":
        return []
    rows = [(first.cell.label, count(first), with_se(first.summary.mean, first.summary.se), _target(first.cell))]
    for line in lines[1:]:
        target, origin = line.cell.target, first.cell.target
        paper = "" if target is None or origin is None else with_se(target.error - origin.error, target.se, "+.2f")
        ours = with_se(line.summary.mean - first.summary.mean, line.summary.se, "+.3f")
        rows.append((line.cell.label, count(line), ours, paper))
    return rows


def _target(cell: Cell) -> str:
    return "" if cell.target is None else with_se(cell.target.error, cell.target.se)
