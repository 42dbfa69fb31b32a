"""How many weights dense performance takes, and what could be saved there."""

from __future__ import annotations

from collections.abc import Sequence

from regrow.analysis.speedup import ESTIMATES
from regrow.analysis.statistics import Summary, intervals_overlap, summarise
from regrow.experiments.analyses.material import Material
from regrow.experiments.tables import Line, markdown, with_se
from regrow.experiments.targets import DENSE_EQUIVALENCE


def describe(material: Material) -> str:
    """The first density whose interval overlaps the dense network's, with the estimated speed-ups there."""
    rows, notes = [], []
    for model in dict.fromkeys(line.cell.model for line in material.table):
        own = [line for line in material.table if line.cell.model == model]
        dense = next((line.summary for line in own if line.cell.is_dense), None)
        if dense is None or dense.se is None:
            notes.append(f"{model}: {no_interval(dense)}.\n")
        notes += _of_the_dense(material, own)
        ways = dict.fromkeys(line.execution for line in own if not line.cell.is_dense)
        for way in ways or [""]:
            thin = sorted((x for x in own if x.execution == way and not x.cell.is_dense), key=lambda x: x.cell.density)
            equal = next((x for x in thin if dense and intervals_overlap(x.summary, dense)), None)
            notes += _undecided(thin[: thin.index(equal)] if equal else thin)
            verdict = "not yet" if dense and dense.se is not None else "no dense result"
            rows.append(_equal_row(material, equal, thin) if equal else (model, verdict, *[""] * 7, way))
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


def _of_the_dense(material: Material, own: Sequence[Line]) -> list[str]:
    """What skipping zeros of activations would save the dense network: a part of every estimate that counts them."""
    notes = []
    for line in own:
        values = _estimates(line, material, "activations") if line.cell.is_dense else []
        if values:
            notes.append(
                f"{line.cell.model}: the dense network has {summarise(values).mean:.2f}x by activations only.\n"
            )
    return notes


def _estimates(line: Line, material: Material, name: str) -> list[float]:
    return [float(row[f"speedup_{name}"]) for row in line.runs(material.rows) if row.get(f"speedup_{name}")]


def _undecided(thin: Sequence[Line]) -> list[str]:
    """A note for each density that was tried and has no interval."""
    few = [line.cell for line in thin if line.summary.n < 2]
    return [
        f"{cell.model}: {100 * cell.density:g}% weights decide nothing, fewer than two runs learned.\n" for cell in few
    ]


def _equal_row(material: Material, line: Line, thin: Sequence[Line]) -> tuple[str, ...]:
    """The line as a row; where fewer weights were not tried, fewer may do."""
    model, density = line.cell.model, line.cell.density
    tried = {other.cell.density for other in thin}
    skipped = [cell for cell in material.cells if cell.model == model and cell.density < density]
    at_most = "at most " if any(cell.density not in tried for cell in skipped) else ""
    means = []
    for name in ESTIMATES:
        values = _estimates(line, material, name)
        means.append(f"{summarise(values).mean:.2f}x" if values else "not measured")
    percent, _, channels, flops = DENSE_EQUIVALENCE[model]
    paper = f"{percent:g}%, {flops:.2f}x, {channels:.2f}x"
    ours = with_se(line.summary.mean, line.summary.se)
    return model, f"{at_most}{100 * density:g}", ours, *means, paper, line.computed
