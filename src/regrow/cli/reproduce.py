"""Re-run a table or figure of the paper and show its numbers beside ours.

    regrow reproduce --list
    regrow reproduce mnist-compression --model lenet300 --density 0.05 --seeds 2 --epochs 5
    regrow reproduce mnist-compression --model lenet300 --results results/mnist-compression

Killed and repeated, it continues. OUT holds a folder per run; RESULTS only runs.csv, tables (CSV, Markdown, LaTeX) and figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from regrow.cli.places import place
from regrow.cli.sweep import add_execution, conclude, executor_of, stopped

if TYPE_CHECKING:
    from regrow.experiments.experiment import Cell, Experiment
    from regrow.experiments.reproduce import Reproduction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow reproduce``."""
    parser.add_argument("what", nargs="?", metavar="WHAT", help="an experiment (see --list)")
    parser.add_argument(
        "--list", action="store_true", help="list the experiments with a cost estimate for this machine"
    )
    parser.add_argument("--model", help="only this model")
    parser.add_argument(
        "--setting",
        action="append",
        help="only settings whose name begins so, e.g. deep-r or 'none / random'; repeat it for more",
    )
    parser.add_argument(
        "--density",
        help="only these densities, e.g. 0.05,0.1; the dense network has density 1, and stays where an analysis compares with it "
        "(dense-equivalence, sensitivity, features)",
    )
    parser.add_argument("--seeds", help="a count, a range or a list (default: see --list)")
    parser.add_argument("--epochs", type=int, help="another number of epochs")
    parser.add_argument("--execution", choices=("masked", "sparse", "auto"), help="how sparse layers are computed")
    parser.add_argument("--out", type=place, help="folder of the run folders (default: runs/reproduce/WHAT)")
    parser.add_argument("--results", type=Path, help="folder of runs.csv, tables and figures (default: OUT)")
    parser.add_argument(
        "--tables-only", action="store_true", help="run nothing: tables and figures of what is finished"
    )
    add_execution(parser)


def run(options: argparse.Namespace) -> int:
    """List, or run and show."""
    from regrow.errors import ConfigurationError
    from regrow.experiments import catalogue

    if options.list:
        return _list()
    if options.what is None:
        raise ConfigurationError(f"name an experiment: {', '.join(catalogue.EXPERIMENTS)}")
    experiment = catalogue.find(options.what)
    narrowed = experiment.chosen(options.model, _densities(options.density), options.epochs, options.setting)
    cells = _with_execution(narrowed, options)
    shown = _with_execution(experiment.chosen(epochs=options.epochs), options)
    try:
        return _run(options, experiment, cells, shown)
    except KeyboardInterrupt:
        return stopped()


def _run(options: argparse.Namespace, experiment: Experiment, cells: list[Cell], shown: list[Cell]) -> int:
    from regrow.experiments.grid import parse_seeds
    from regrow.experiments.reproduce import collect, reproduce
    from regrow.experiments.watch import SweepWatch

    seeds = parse_seeds(options.seeds) if options.seeds else list(range(experiment.seeds))
    folder = options.out or Path("runs/reproduce") / experiment.name
    results = options.results or folder
    if options.tables_only:
        done = collect(experiment, cells, seeds, folder, results, shown)
    else:
        with executor_of(options) as executor, SweepWatch() as watch:
            done = reproduce(experiment, cells, seeds, folder, results, executor, watch, shown)
    _show(experiment, done, results)
    if options.epochs is not None:
        print(f"note: {options.epochs} epochs; the paper's values are for those of its own setting")
    return 0 if options.tables_only else conclude(done.outcomes, folder, results)


def _show(experiment: Experiment, done: Reproduction, results: Path) -> None:
    from rich.console import Console

    from regrow.experiments.tables import as_rich

    if not done.table:
        print("no finished run yet")
        return
    Console().print(as_rich(done.table, experiment.shows))
    for text in done.texts:
        print(text)
    print(f"tables and figures in {results}")


def _densities(text: str | None) -> list[float] | None:
    from regrow.errors import ConfigurationError

    try:
        return [float(part) for part in text.split(",")] if text else None
    except ValueError as error:
        raise ConfigurationError(f"--density takes shares such as 0.05,0.1, got {text!r}") from error


def _with_execution(cells: list[Cell], options: argparse.Namespace) -> list[Cell]:
    if not options.execution:
        return cells
    from regrow.config import Config, override
    from regrow.experiments.reproduce import with_overrides
    from regrow.methods import build

    def changed(config: Config) -> Config:
        # Sparse kernels on a network without a missing weight would only be slow; training with dense or noisy weights has none.
        weighting = build(config.sparse.method, dict(config.sparse.options)).weighting
        dense = config.sparse.method == "dense" or (weighting is not None and weighting.trains_otherwise)
        return config if dense else override(config, {"execution": options.execution})

    return with_overrides(cells, changed)


def _list() -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from regrow.environment import cores
    from regrow.experiments.catalogue import EXPERIMENTS
    from regrow.experiments.duration import estimate, measured_rate
    from regrow.experiments.watch import readable

    rate = measured_rate()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("experiment", no_wrap=True)
    table.add_column("shows")
    for name in ("runs", "estimate here"):
        table.add_column(name, justify="right", no_wrap=True)
    for experiment in EXPERIMENTS.values():
        cells = experiment.cells()
        seconds = estimate(cells, experiment.seeds, rate)
        most = "at most " if experiment.stops_when_equal else ""
        runs = f"{len(cells)} x {experiment.seeds}"
        table.add_row(experiment.name, experiment.shows, runs, most + readable(seconds))
    Console().print(table)
    print(
        f"runs: settings x seeds. Estimates: masked execution on all {cores()} cores, from the\n"
        "work of each network and a short measurement of a dense convolution just now;\n"
        "small networks count 1 ms a step. Methods and other load change them."
    )
    return 0
