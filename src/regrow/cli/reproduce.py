"""Re-run a table or figure of the paper and show its numbers beside ours.

    regrow reproduce --list
    regrow reproduce mnist-compression --model lenet300 --density 0.05 --seeds 2 --epochs 5

Killed and repeated, it continues. Tables (CSV, Markdown, LaTeX) and figures are written to OUT.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regrow.cli.sweep import Watch, add_execution, conclude, make_executor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow reproduce``."""
    parser.add_argument("what", nargs="?", metavar="WHAT", help="an experiment (see --list)")
    parser.add_argument(
        "--list", action="store_true", help="list the experiments with a cost estimate for this machine"
    )
    parser.add_argument("--model", help="only this model")
    parser.add_argument("--density", help="only these densities, e.g. 0.05,0.1; the dense network has density 1")
    parser.add_argument("--seeds", help="a count, a range or a list (default: as many as the paper's)")
    parser.add_argument("--epochs", type=int, help="another number of epochs")
    parser.add_argument("--execution", choices=("masked", "sparse", "auto"), help="how sparse layers are computed")
    parser.add_argument("--out", type=Path, help="folder of the results (default: runs/reproduce/WHAT)")
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
    densities = [float(d) for d in options.density.split(",")] if options.density else None
    cells = experiment.chosen(options.model, densities, options.epochs)
    if options.execution:
        from regrow.config import override
        from regrow.experiments.reproduce import with_overrides

        cells = with_overrides(cells, lambda config: override(config, {"execution": options.execution}))
    return _run(options, experiment, cells)


def _run(options: argparse.Namespace, experiment: object, cells: list) -> int:
    from rich.console import Console

    from regrow.experiments.grid import parse_seeds
    from regrow.experiments.reproduce import collect, reproduce, write
    from regrow.experiments.tables import as_rich

    seeds = parse_seeds(options.seeds) if options.seeds else list(range(experiment.seeds))  # type: ignore[attr-defined]
    folder = options.out or Path("runs/reproduce") / experiment.name  # type: ignore[attr-defined]
    if options.tables_only:
        table, outcomes = collect(cells, seeds, folder), []
        write(experiment, table, folder)  # type: ignore[arg-type]
    else:
        with Watch(len(cells) * len(seeds)) as watch:
            table, outcomes = reproduce(experiment, cells, seeds, folder, make_executor(options), watch.report)  # type: ignore[arg-type]
    Console().print(as_rich(table, experiment.shows))  # type: ignore[attr-defined]
    print(f"tables and figures in {folder}")
    return conclude(outcomes, folder)


def _list() -> int:
    from rich.console import Console
    from rich.table import Table

    from regrow.experiments.catalogue import EXPERIMENTS
    from regrow.experiments.cost import estimate, measured_rate

    rate = measured_rate()
    table = Table("experiment", "shows", "settings", "seeds", "runs", "estimate here")
    for experiment in EXPERIMENTS.values():
        cells = experiment.cells()
        hours = estimate(cells, experiment.seeds, rate) / 3600
        runs = len(cells) * experiment.seeds
        table.add_row(
            experiment.name, experiment.shows, str(len(cells)), str(experiment.seeds), str(runs), f"{hours:,.1f} h"
        )
    Console().print(table)
    return 0
