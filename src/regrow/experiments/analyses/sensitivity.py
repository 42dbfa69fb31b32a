"""Is sparse training more sensitive to the momentum coefficient than dense training?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from regrow.analysis.statistics import SensitivityTest, sensitivity_test
from regrow.experiments.analyses.material import Material
from regrow.experiments.experiment import ANCHOR_MOMENTUM, DIVERGING_MOMENTUM, Cell, split_label
from regrow.experiments.tables import Line, markdown


def describe(material: Material) -> str:
    """One test per execution, and what it lacks."""
    swept = [line for line in material.table if split_label(line.cell.label)[0] == "momentum"]
    ways = list(dict.fromkeys(line.execution for line in swept if not line.cell.is_dense))
    parts = []
    for way in ways or [""] * bool(swept):
        own = [line for line in swept if line.summary.n and (line.execution == way or line.cell.is_dense)]
        models = {line.cell.model for line in swept}
        found = _test_of(own) + _missing_momenta([c for c in material.cells if c.model in models], own)
        parts.append(f"Execution: {way}\n\n{found}" if len(ways) > 1 else found)
    return "\n".join(parts)


def _test_of(lines: Sequence[Line]) -> str:
    """The test of these lines, or why there is none."""
    means: dict[str, dict[str, dict[float, float]]] = {"sparse": defaultdict(dict), "dense": defaultdict(dict)}
    for line in lines:
        _, value, series = split_label(line.cell.label)
        means[series][line.cell.model][value] = line.summary.mean
    pairs = {model: sorted(set(means["sparse"][model]) & set(means["dense"][model])) for model in means["sparse"]}
    complete = {
        model: found
        for model, found in pairs.items()
        if ANCHOR_MOMENTUM in found and {*found} - {ANCHOR_MOMENTUM, DIVERGING_MOMENTUM}
    }
    head = "Sensitivity to momentum, sparse against dense: no test,"
    if not complete:
        needed = f"momentum {ANCHOR_MOMENTUM:g} and another one below {DIVERGING_MOMENTUM:g}"
        return f"{head} as no network has results, sparse and dense, at {needed}.\n"
    sparse, dense = ({m: {v: means[k][m][v] for v in complete[m]} for m in complete} for k in ("sparse", "dense"))
    try:
        return _described(sensitivity_test(sparse, dense, ANCHOR_MOMENTUM, (DIVERGING_MOMENTUM,)), sparse)
    except ValueError as error:
        return f"{head} as {error}.\n"


def _missing_momenta(cells: Sequence[Cell], found: Sequence[Line]) -> str:
    """Which settings of the momentum sweep have no run that learned."""
    known = {(line.cell.model, line.cell.label) for line in found}
    labels = [(cell.model, cell.label) for cell in cells if cell.label.startswith("momentum ")]
    missing = [
        f"{model} {label}"
        for model, label in labels
        if (model, label) not in known and split_label(label)[1] != DIVERGING_MOMENTUM
    ]
    return f"\nWithout a result: {', '.join(missing)}.\n" if missing else ""


def _described(test: SensitivityTest, sparse: dict[str, dict[float, float]]) -> str:
    found = {"Levene, equal variance": test.equal_variance}
    found |= {f"D'Agostino, normality of {name}": p for name, p in test.normality.items()}
    checks = [(name, "fewer than 8 values" if p is None else f"{p:.3g}") for name, p in found.items()]
    networks = ", ".join(sparse)
    return (
        f"Sensitivity to momentum, sparse against dense ({networks}; deviations from momentum 0.9, without 0.99):\n"
        f"Wilcoxon signed-rank W = {test.statistic:g}, p = {test.p:.2g}, {test.pairs} pairs (paper: W = 22.0, p = 0.58; its "
        "published means give W = 27.0, p = 0.96).\n\n" + markdown(("check", "p"), checks)
    )
