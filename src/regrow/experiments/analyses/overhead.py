"""What the procedure itself costs, from the wall time of whole runs."""

from __future__ import annotations

from regrow.analysis.statistics import summarise
from regrow.experiments.analyses.material import Material
from regrow.experiments.tables import markdown, with_se


def describe(material: Material) -> str:
    """Wall time of the dense run over that of sparse momentum with masks: what the procedure itself costs."""
    rows = []
    for model in dict.fromkeys(cell.config.model for cell in material.cells):
        dense, thin = (_seconds(material, model, method) for method in ("dense", "sparse-momentum"))
        if dense and thin:
            middle = summarise(dense).mean
            found = summarise([middle / seconds for seconds in thin])
            rows.append((model, f"{len(dense)} / {len(thin)}", with_se(found.mean, found.se)))
    if not rows:
        return ""
    head = (
        "Speed of masked sparse momentum relative to the dense network, by wall time of whole runs (paper: 0.973 ± 0.029). Only as good "
        "as the machine was quiet.\n\n"
    )
    return head + markdown(("model", "runs dense / sparse", "relative speed ± SE"), rows)


def _seconds(material: Material, model: str, method: str) -> list[float]:
    """Seconds of the finished runs of the shown settings."""
    own = [line for line in material.table if line.cell.config.model == model]
    own = [line for line in own if line.cell.config.sparse.method == method]
    found = [row for line in own for row in line.runs(material.rows)]
    return [float(row["seconds"]) for row in found if row["execution"] == "masked"]
