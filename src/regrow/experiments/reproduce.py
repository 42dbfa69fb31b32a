"""Run an experiment, or what is missing of it, and write tables and figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regrow.experiments.experiment import Cell, Experiment
from regrow.experiments.figures import draw
from regrow.experiments.statistics import intervals_overlap, summarise
from regrow.experiments.sweep import Executor, Outcome, is_finished, rows, sweep
from regrow.experiments.tables import Line, as_csv, as_latex, as_markdown, cell_key, lines
from regrow.training.files import write_atomically

Report = Callable[[Outcome, int, int], None]


def reproduce(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: Sequence[int],
    folder: Path,
    executor: Executor,
    report: Report | None = None,
) -> tuple[list[Line], list[Outcome]]:
    """Run every cell with every seed and write the results; returns the table and how each run ended."""
    if experiment.name == "dense-equivalence":
        outcomes = _until_equal(cells, seeds, folder, executor, report)
    else:
        outcomes = sweep([job for cell in cells for job in cell.jobs(seeds)], folder, executor, report)
    table = collect(cells, seeds, folder)
    write(experiment, table, folder)
    return table, outcomes


def collect(cells: Sequence[Cell], seeds: Sequence[int], folder: Path) -> list[Line]:
    """The table of all finished runs."""
    errors: dict[str, list[float]] = defaultdict(list)
    for cell in cells:
        for row in rows(cell.jobs(seeds), folder):
            errors[cell_key(cell)].append(row["test_error"])
    return lines(cells, errors)


def write(experiment: Experiment, table: Sequence[Line], folder: Path) -> None:
    """Table as CSV, Markdown and LaTeX; figures as SVG and PNG."""
    for ending, form in (("csv", as_csv), ("md", as_markdown), ("tex", as_latex)):
        write_atomically(folder / f"table.{ending}", form(table).encode())
    if table:
        draw(experiment, table, folder)


def _until_equal(
    cells: Sequence[Cell], seeds: Sequence[int], folder: Path, executor: Executor, report: Report | None
) -> list[Outcome]:
    """Per model: the dense network, then more and more weights until the 95% intervals overlap."""
    outcomes: list[Outcome] = []
    for model in dict.fromkeys(cell.model for cell in cells):
        own = sorted((c for c in cells if c.model == model), key=lambda c: (c.label != "dense", c.density))
        dense = None
        for cell in own:
            outcomes += sweep(cell.jobs(seeds), folder, executor, report)
            errors = [row["test_error"] for row in rows(cell.jobs(seeds), folder)]
            if cell.label == "dense":
                dense = summarise(errors) if errors else None
            elif errors and dense is not None and intervals_overlap(summarise(errors), dense):
                break
    return outcomes


def remaining(cells: Sequence[Cell], seeds: Sequence[int], folder: Path) -> int:
    """How many runs are not finished."""
    return sum(not is_finished(job, folder) for cell in cells for job in cell.jobs(seeds))


def with_overrides(cells: Sequence[Cell], override: Callable[[Any], Any]) -> list[Cell]:
    """The cells with changed configurations."""
    return [replace(cell, config=override(cell.config)) for cell in cells]
