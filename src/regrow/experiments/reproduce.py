"""Run an experiment, or what is missing of it, and write tables and figures.

Raw run folders and results are apart: ``folder`` holds a folder per run (checkpoints, logs), ``results`` only what is worth keeping,
``runs.csv`` with one row per run, and the tables and figures that follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regrow.analysis.statistics import Summary, intervals_overlap, summarise
from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.experiments import analyses
from regrow.experiments.analyses.equivalence import no_interval
from regrow.experiments.experiment import Cell, Experiment
from regrow.experiments.figures import draw
from regrow.experiments.rows import add_runs, learned, read_runs
from regrow.experiments.sweep import Executor, Outcome, Watcher, announce, rows, sweep, unfinished
from regrow.experiments.tables import Line, as_csv, as_latex, as_markdown, table_from_rows
from regrow.files import held, write_atomically

__all__ = ["Reproduction", "collect", "read_runs", "reproduce", "run_cells", "table_from_rows", "with_overrides"]


@dataclass(frozen=True)
class Reproduction:
    """What came out: the table, texts of further analyses, and how each run ended."""

    table: list[Line]
    texts: list[str]
    outcomes: list[Outcome]


def reproduce(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: Sequence[int],
    folder: Path,
    results: Path,
    executor: Executor,
    watcher: Watcher | None = None,
    shown: Sequence[Cell] | None = None,
) -> Reproduction:
    """Run every cell with every seed and write the results.

    Args:
        experiment: what is reproduced.
        cells: what to run of it.
        seeds: each cell is run with each.
        folder: of the run folders.
        results: folder of ``runs.csv``, tables and figures.
        executor: where runs go.
        watcher: who watches.
        shown: cells of tables and figures as far as ``runs.csv`` has them; by default those that are run.
    """
    if (results / "runs.csv").is_file():
        read_runs(results / "runs.csv")  # a file that is none is refused before anything runs, not after all has
    outcomes = run_cells(experiment, cells, seeds, folder, executor, watcher)
    done = collect(experiment, cells, seeds, folder, results, shown, measures=True)
    return replace(done, outcomes=outcomes)


def run_cells(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: Sequence[int],
    folder: Path,
    executor: Executor,
    watcher: Watcher | None = None,
) -> list[Outcome]:
    """Run what is missing."""
    if experiment.stops_when_equal:
        return _until_equal(cells, seeds, folder, executor, watcher)
    return sweep([job for cell in cells for job in cell.jobs(seeds)], folder, executor, watcher)


def collect(
    experiment: Experiment,
    cells: Sequence[Cell],
    seeds: Sequence[int],
    folder: Path,
    results: Path,
    shown: Sequence[Cell] | None = None,
    measures: bool = False,
) -> Reproduction:
    """Add the finished runs to ``runs.csv``, and write tables and figures of all the rows there that belong to shown cells.

    Further analyses run networks for what they lack (first masks of the growth window, channels of features) only if ``measures``.
    """
    shown = list(cells if shown is None else shown)
    results.mkdir(parents=True, exist_ok=True)
    with held(results):  # tables of all rows, also where two processes write them
        every = add_runs(results / "runs.csv", [row for cell in cells for row in rows(cell.jobs(seeds), folder)])
        table = table_from_rows(shown, every)
        for ending, form in (("csv", as_csv), ("md", as_markdown), ("tex", as_latex)):
            write_atomically(results / f"table.{ending}", form(table).encode())
        draw(experiment, table, results)
        texts = analyses.run(analyses.Material(experiment, shown, list(seeds), table, every, folder, results, measures))
    return Reproduction(table, texts, [])


def _until_equal(
    cells: Sequence[Cell], seeds: Sequence[int], folder: Path, executor: Executor, watcher: Watcher | None
) -> list[Outcome]:
    """Per model: the dense network, then more and more weights until the 95% intervals overlap; nothing if there is none to reach."""
    if len(seeds) < 2:
        raise ConfigurationError("intervals need at least two seeds: --seeds 2 or more")
    if watcher is not None:
        announce([job for cell in cells for job in cell.jobs(seeds)], folder, watcher, at_most=True)
    outcomes: list[Outcome] = []
    for model in dict.fromkeys(cell.model for cell in cells):
        own = sorted((c for c in cells if c.model == model), key=lambda c: (not c.is_dense, c.density))
        dense = None
        for number, cell in enumerate(own, 1):
            outcomes += sweep(cell.jobs(seeds), folder, executor, watcher, announced=True)
            found = summarise([row["test_error"] for row in rows(cell.jobs(seeds), folder) if learned(row)])
            dense = found if cell.is_dense else dense
            why = _why_enough(cell, found, dense)
            if why:
                rest = unfinished([job for c in own[number:] for job in c.jobs(seeds)], folder)
                if watcher is not None:
                    watcher.skipped(rest, f"{model}: {why}")
                break
    return outcomes


def _why_enough(cell: Cell, found: Summary, dense: Summary | None) -> str:
    """Why no more weights are tried after this cell; empty if they are."""
    if dense is None or dense.se is None:
        return no_interval(dense)
    if not cell.is_dense and intervals_overlap(found, dense):
        return f"the interval at {100 * cell.density:g}% weights overlaps the dense network's"
    return ""


def with_overrides(cells: Sequence[Cell], override: Callable[[Config], Config]) -> list[Cell]:
    """The cells with changed configurations."""
    return [replace(cell, config=override(cell.config)) for cell in cells]
