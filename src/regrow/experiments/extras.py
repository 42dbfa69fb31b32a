"""What some experiments show besides their table: tests, differences, speed-ups, features."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from regrow.analysis.speedup import ESTIMATES
from regrow.analysis.statistics import SensitivityTest, Summary, intervals_overlap, sensitivity_test, summarise
from regrow.experiments import curves, medians, top5, trade, windows
from regrow.experiments.experiment import DIVERGING_MOMENTUM, Cell, Experiment, split_label
from regrow.experiments.rows import Row
from regrow.experiments.tables import Line, count, markdown, number, with_se
from regrow.experiments.targets import DENSE_EQUIVALENCE, FEATURES
from regrow.files import write_atomically

if TYPE_CHECKING:
    from regrow.analysis.features import Comparison
    from regrow.experiments.feature_pairs import Pair


@dataclass(frozen=True)
class Material:
    """Everything an analysis may need: all cells shown, the seeds asked for; ``trains``: may it run networks for what it lacks."""

    experiment: Experiment
    cells: list[Cell]
    seeds: list[int]
    table: list[Line]
    rows: Sequence[Row]
    folder: Path
    results: Path
    trains: bool = False


def run(material: Material) -> list[str]:
    """The experiment's further analyses as Markdown, each written to the results too."""
    texts = []
    for name, analyse in EXTRAS.get(material.experiment.name, {}).items():
        text = analyse(material)
        if text:
            write_atomically(material.results / f"{name}.md", text.encode())
            texts.append(text)
    return texts


# ---------------------------------------------------------------------------------------------- overhead


def overhead(material: Material) -> str:
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


# ---------------------------------------------------------------------------------------------- ablation


def differences(material: Material) -> str:
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


# ---------------------------------------------------------------------------------------------- sensitivity


# The error at this momentum is the origin.
_ANCHOR = 0.9


def sensitivity(material: Material) -> str:
    """Is sparse training more sensitive to the momentum coefficient than dense training? One test per execution."""
    swept = [line for line in material.table if split_label(line.cell.label)[0] == "momentum"]
    ways = list(dict.fromkeys(line.execution for line in swept if not line.cell.is_dense))
    parts = []
    for way in ways or [""] * bool(swept):
        own = [line for line in swept if line.summary.n and (line.execution == way or line.cell.is_dense)]
        models = {line.cell.model for line in swept}
        found = _sensitivity_of(own) + _missing_momenta([c for c in material.cells if c.model in models], own)
        parts.append(f"Execution: {way}\n\n{found}" if len(ways) > 1 else found)
    return "\n".join(parts)


def _sensitivity_of(lines: Sequence[Line]) -> str:
    """The test of these lines, or why there is none."""
    means: dict[str, dict[str, dict[float, float]]] = {"sparse": defaultdict(dict), "dense": defaultdict(dict)}
    for line in lines:
        _, value, series = split_label(line.cell.label)
        means[series][line.cell.model][value] = line.summary.mean
    pairs = {model: sorted(set(means["sparse"][model]) & set(means["dense"][model])) for model in means["sparse"]}
    complete = {
        model: found for model, found in pairs.items() if _ANCHOR in found and {*found} - {_ANCHOR, DIVERGING_MOMENTUM}
    }
    head = "Sensitivity to momentum, sparse against dense: no test,"
    if not complete:
        needed = f"momentum {_ANCHOR:g} and another one below {DIVERGING_MOMENTUM:g}"
        return f"{head} as no network has results, sparse and dense, at {needed}.\n"
    sparse, dense = ({m: {v: means[k][m][v] for v in complete[m]} for m in complete} for k in ("sparse", "dense"))
    try:
        return _describe(sensitivity_test(sparse, dense, _ANCHOR, (DIVERGING_MOMENTUM,)), sparse)
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


def _describe(test: SensitivityTest, sparse: dict[str, dict[float, float]]) -> str:
    found = {"Levene, equal variance": test.equal_variance}
    found |= {f"D'Agostino, normality of {name}": p for name, p in test.normality.items()}
    checks = [(name, "fewer than 8 values" if p is None else f"{p:.3g}") for name, p in found.items()]
    networks = ", ".join(sparse)
    return (
        f"Sensitivity to momentum, sparse against dense ({networks}; deviations from momentum 0.9, without 0.99):\n"
        f"Wilcoxon signed-rank W = {test.statistic:g}, p = {test.p:.2g}, {test.pairs} pairs (paper: W = 22.0, p = 0.58; its "
        "published means give W = 27.0, p = 0.96).\n\n" + markdown(("check", "p"), checks)
    )


# ---------------------------------------------------------------------------------------------- dense equivalence


def equivalence(material: Material) -> str:
    """The first density whose interval overlaps the dense network's, with the estimated speed-ups there."""
    rows, notes = [], []
    for model in dict.fromkeys(line.cell.model for line in material.table):
        own = [line for line in material.table if line.cell.model == model]
        dense = next((line.summary for line in own if line.cell.is_dense), None)
        if dense is None or dense.se is None:
            notes.append(f"{model}: {no_interval(dense)}.\n")
        ways = dict.fromkeys(line.execution for line in own if not line.cell.is_dense)
        for way in ways or [""]:
            thin = sorted((x for x in own if x.execution == way and not x.cell.is_dense), key=lambda x: x.cell.density)
            equal = next((x for x in thin if dense and intervals_overlap(x.summary, dense)), None)
            tried = [line.cell.density for line in thin if equal is None or line.cell.density <= equal.cell.density]
            notes += _undecided(
                [c for c in material.cells if c.model == model and c.density <= max(tried, default=0)], thin
            )
            verdict = "not yet" if dense and dense.se is not None else "no dense result"
            rows.append(_equal_row(model, equal, material.rows) if equal else (model, verdict, *[""] * 7, way))
    header = (
        "model",
        "weights %",
        "error % ± SE",
        *(name.replace("_", " ") for name in ESTIMATES),
        "paper",
        "execution",
    )
    head = (
        "Weights needed for dense performance (95% intervals overlap), and speed-ups estimated there over training. Forward "
        "convolutions only; `both` and `empty channels dead maps` are the paper's two figures.\n\n"
    )
    return head + markdown(header, rows) + "".join(f"\n{note}" for note in notes) if rows else ""


def no_interval(dense: Summary | None) -> str:
    """Why nothing can be compared with the dense network."""
    runs = dense.n if dense else 0
    return (
        f"no interval to reach, {runs or 'no'} run{'s' * (runs != 1)} of the dense network learned and two are needed"
    )


def _undecided(cells: Sequence[Cell], thin: Sequence[Line]) -> list[str]:
    """A note for each density that was tried and has no interval."""
    runs = {line.cell.density: line.summary.n for line in thin}
    few = [cell for cell in cells if not cell.is_dense and runs.get(cell.density, 0) < 2]
    return [
        f"{cell.model}: {100 * cell.density:g}% weights decide nothing, fewer than two runs learned.\n" for cell in few
    ]


def _equal_row(model: str, line: Line, rows: Sequence[Row]) -> tuple[str, ...]:
    own = line.runs(rows)
    means = []
    for name in ESTIMATES:
        values = [float(row[f"speedup_{name}"]) for row in own if row.get(f"speedup_{name}")]
        means.append(f"{summarise(values).mean:.2f}x" if values else "not measured")
    percent, _, channels, flops = DENSE_EQUIVALENCE[model]
    paper = f"{percent:g}%, {flops:.2f}x, {channels:.2f}x"
    ours = with_se(line.summary.mean, line.summary.se)
    return model, f"{100 * line.cell.density:g}", ours, *means, paper, line.execution


# ---------------------------------------------------------------------------------------------- features


_COLLAPSED = "Not analysed: one of the two networks has collapsed.\n"
_NOT_MEASURED = "Not analysed yet: the same command without --tables-only, where the runs are, measures the channels.\n"


def features(material: Material) -> str:
    """Class specialisation of each pair of a dense and a sparse network with the same seed, where both learned."""
    from regrow.experiments.feature_pairs import pairs

    titled = (
        f"Class specialisation, {pair.model}, seed {pair.seed}\n\n{_features_of(pair, material)}"
        for pair in pairs(material.cells, material.rows)
    )
    return "\n".join(titled)


def _features_of(pair: Pair, material: Material) -> str:
    from regrow.experiments.feature_pairs import analyse_pair, channels_of

    if not pair.learned:
        return _COLLAPSED
    found = channels_of(pair, material.folder, material.results, material.trains)
    if found is None:
        return _NOT_MEASURED
    return describe_features(pair.model, analyse_pair(pair, *found, material.results))


def describe_features(model: str, comparison: Comparison) -> str:
    """The pooled test and those of the layers, beside the means that the authors stored, where they have the network."""
    paper = FEATURES.get(model)
    header = ["layer", "channels dense / sparse", "mean S dense / sparse", "H", "p", "p (Holm)"]
    tests = [comparison.pooled, *comparison.layers]
    rows = [
        [
            test.layer,
            f"{test.dense_channels} / {test.sparse_channels}",
            f"{test.dense_mean:.4f} / {test.sparse_mean:.4f}",
            number(test.statistic, ".2f"),
            number(test.p, ".2g"),
            number(test.corrected, ".2g"),
        ]
        for test in tests
    ]
    if paper is None:
        return markdown(header, rows)
    stored = [f"{dense:.4f} / {sparse:.4f}" for dense, sparse in (paper.means, *zip(*paper.layers, strict=True))]
    rows = [[*row, mean] for row, mean in zip(rows, stored, strict=True)]
    head = (
        f"Paper: {paper.printed}. The channels that its authors stored, {paper.channels[0]} / {paper.channels[1]}, give "
        f"H = {paper.statistic:g}, p = {paper.p:.2g}.\n\n"
    )
    return head + markdown([*header, "theirs, mean S dense / sparse"], rows)


EXTRAS: dict[str, dict[str, Callable[[Material], str]]] = {
    "mnist-compression": {"overhead": overhead},
    "cifar-snip": {"overhead": overhead},
    "imagenet": {"top5": top5.describe},
    "ablation": {"differences": differences},
    "sensitivity": {"wilcoxon": sensitivity, "medians": medians.describe},
    "dense-equivalence": {"equivalence": equivalence},
    "features": {"specialisation": features},
    "growth-window": {"window": windows.describe},
    "cost-redistribution": {"trade": trade.describe},
    "cifar-check": {"curves": curves.describe},
}
