"""Learning curves of an experiment's runs: kept in ``curves.csv``, as a table of their ends, and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regrow.experiments.analyses.material import Material
from regrow.experiments.columns import read_table, write_table
from regrow.experiments.grid import Job
from regrow.experiments.sweep import is_finished
from regrow.experiments.tables import markdown
from regrow.figure import blank, save
from regrow.files import held
from regrow.training.folder import RunFolder
from regrow.training.forms import is_metrics_row
from regrow.training.ledger import read_rows

COLUMNS = ("run", "model", "setting", "density", "seed", "execution", "kind", "step", "epoch", "loss", "accuracy")
HEADER = (
    "model",
    "setting",
    "weights %",
    "seed",
    "execution",
    "steps",
    "training loss",
    "validation accuracy %",
    "test accuracy %",
)

Curve = Sequence[dict[str, str]]


def describe(material: Material) -> str:
    """How far each run learned; its rows are added to ``curves.csv``, from which the figure is drawn."""
    jobs = [job for cell in material.cells for job in cell.jobs(material.seeds)]
    finished = [row for job in jobs if is_finished(job, material.folder) for row in _rows(job, material.folder)]
    curves = add(material.results / "curves.csv", finished)
    if not curves:
        return ""
    draw(curves, material.results)
    head = "Training loss: over the first and the last whole interval of each run's log. Accuracy: first and last, or only.\n\n"
    return head + markdown(HEADER, [_ends(curve) for curve in curves])


def add(path: Path, rows: Iterable[dict[str, Any]]) -> list[Curve]:
    """Add rows to the file, in place of older ones of the same runs; returns all curves in it."""
    with held(path.parent):
        curves = _by_run(read_table(path, COLUMNS, "learning curves")) | _by_run(rows)
        if curves:
            write_table(path, COLUMNS, (row for run in sorted(curves) for row in curves[run]))
        return list(_by_run(read_table(path, COLUMNS, "learning curves")).values())


def draw(curves: Sequence[Curve], folder: Path) -> list[Path]:
    """Loss and accuracy over steps, one line per run for training, rings for held-out images."""
    figure = blank(9.0, 4.0)
    loss, accuracy = figure.subplots(1, 2)
    names = _names(curves)
    for number, curve in enumerate(curves):
        color, train, held_out = f"C{number % 10}", _kind(curve, "train"), _kind(curve, "validation", "test")
        for axes, key, scale in ((loss, "loss", 1), (accuracy, "accuracy", 100)):
            axes.plot(*_points(train, key, scale), color=color, label=names[number], marker=".", ms=4, lw=1)
            axes.plot(*_points(held_out, key, scale), color=color, marker="o", mfc="none", ls="")
    for axes, name in ((loss, "loss"), (accuracy, "accuracy (%)")):
        axes.set(xscale="log", xlabel="step", ylabel=f"{name}; rings: held-out images")
        axes.grid(alpha=0.25)
    figure.legend(*loss.get_legend_handles_labels(), loc="outside right upper", fontsize=7)
    return save(figure, folder / "curves")


def _rows(job: Job, folder: Path) -> list[dict[str, Any]]:
    sparse = job.config.sparse
    about = {
        "run": job.key,
        "model": job.config.model,
        "setting": job.label,
        "density": sparse.density,
        "seed": job.config.seed,
        "execution": sparse.execution,
    }
    measured = ("kind", "step", "epoch", "loss", "accuracy")
    return [
        about | {key: row[key] for key in measured}
        for row in read_rows(RunFolder(folder / job.key).metrics, is_metrics_row)
    ]


def _by_run(rows: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault(row["run"], []).append(row)
    return curves


def _kind(curve: Curve, *kinds: str) -> list[dict[str, str]]:
    return [row for row in curve if row["kind"] in kinds]


def _points(rows: Curve, key: str, scale: float) -> tuple[list[int], list[float]]:
    return [int(row["step"]) for row in rows], [scale * float(row[key]) for row in rows]


def _names(curves: Sequence[Curve]) -> list[str]:
    """Model, density and setting, with seed and execution where runs share those."""
    about = [curve[0] for curve in curves]
    names = [f"{run['model']} {100 * float(run['density']):g}%, {run['setting']}" for run in about]
    return [
        f"{name}, seed {run['seed']}, {run['execution']}" if names.count(name) > 1 else name
        for name, run in zip(names, about, strict=True)
    ]


def _ends(curve: Curve) -> tuple[str, ...]:
    first = curve[0]
    return (
        first["model"],
        first["setting"],
        f"{100 * float(first['density']):g}",
        first["seed"],
        first["execution"],
        curve[-1]["step"],
        _first_and_last(_whole_intervals(_kind(curve, "train")), "loss", 1, ".3f"),
        *(_first_and_last(_kind(curve, kind), "accuracy", 100, ".1f") for kind in ("validation", "test")),
    )


def _first_and_last(rows: Curve, key: str, scale: float, form: str) -> str:
    ends = dict.fromkeys((rows[0]["step"], rows[-1]["step"])) if rows else ()
    values = {row["step"]: format(scale * float(row[key]), form) for row in rows}
    return " -> ".join(values[step] for step in ends)


def _whole_intervals(rows: Curve) -> Curve:
    """Rows over as many steps as the first: a run's last one may be of very few."""
    steps = [0, *(int(row["step"]) for row in rows)]
    return [row for row, start, end in zip(rows, steps, steps[1:], strict=False) if end - start >= steps[1]]
