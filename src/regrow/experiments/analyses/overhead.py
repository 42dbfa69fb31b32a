"""What the procedure itself costs, from the wall time of whole runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regrow.analysis.statistics import Summary, summarise
from regrow.experiments.analyses.material import Material
from regrow.experiments.tables import Line, markdown, with_se


def describe(material: Material) -> str:
    """Wall time of the dense run over that of sparse momentum with masks: what the procedure itself costs."""
    rows = []
    for line in material.table:
        dense, thin = _dense_seconds(material, line.cell.model), _seconds(material, [line])
        if line.cell.config.sparse.method == "sparse-momentum" and dense.n and thin.n:
            weights, runs = f"{100 * line.cell.density:g}", f"{dense.n} / {thin.n}"
            rows.append((line.cell.model, line.cell.label, weights, runs, with_se(*_ratio(dense, thin))))
    if not rows:
        return ""
    head = (
        "Speed of masked sparse momentum relative to the dense network, by wall time of whole runs (paper: 0.973 ± 0.029). Only as good "
        "as the machine was quiet.\n\n"
    )
    return head + markdown(("model", "setting", "weights %", "runs dense / sparse", "relative speed ± SE"), rows)


def _dense_seconds(material: Material, model: str) -> Summary:
    return _seconds(material, [line for line in material.table if line.cell.is_dense and line.cell.model == model])


def _seconds(material: Material, lines: Sequence[Line]) -> Summary:
    """Seconds of the runs of these lines that learned, computed dense or masked."""
    runs = [row for line in lines for row in line.runs(material.rows)]
    return summarise([float(row["seconds"]) for row in runs if row["execution"] == "masked"])


def _ratio(dense: Summary, thin: Summary) -> tuple[float, float | None]:
    """Mean over mean, and its standard error to first order, of which both have their part."""
    speed = dense.mean / thin.mean
    if dense.se is None or thin.se is None:
        return speed, None
    return speed, speed * math.hypot(dense.se / dense.mean, thin.se / thin.mean)
