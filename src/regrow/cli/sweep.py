"""Run a grid of configurations times seeds, side by side, resumable.

    regrow sweep mnist-lenet300 --grid density=0.01,0.05 --grid option.prune_rate=0.2,0.5 --seeds 5 --epochs 10
    regrow sweep mnist-lenet5 --grid method=rigl,set --seeds 0-2 --on ray

Finished runs are never repeated; killed ones continue. Rows are collected in OUT/runs.csv.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from regrow.cli.configured import add_configuration, read_configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow sweep``."""
    add_configuration(parser)
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=A,B",
        help="values of a configuration key; repeat for more keys",
    )
    parser.add_argument("--seeds", default="1", help="a count (5), a range (0-9) or a list (0,3)")
    parser.add_argument("--out", type=Path, default=Path("runs/sweep"), help="folder of the sweep")
    add_execution(parser)


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Where and how many at once."""
    parser.add_argument("--jobs", type=int, help="runs side by side (default: one per core)")
    parser.add_argument(
        "--on",
        choices=("local", "ray"),
        default="local",
        help="this machine, or a Ray cluster (RAY_ADDRESS, or a local one)",
    )


def run(options: argparse.Namespace) -> int:
    """Expand and run."""
    from regrow.experiments.grid import expand, parse_grid, parse_seeds
    from regrow.experiments.sweep import sweep

    jobs = expand(read_configuration(options), parse_grid(options.grid), parse_seeds(options.seeds))
    with Watch(len(jobs)) as watch:
        outcomes = sweep(jobs, options.out, make_executor(options), watch.report)
    return conclude(outcomes, options.out)


def make_executor(options: argparse.Namespace) -> Any:
    """Local processes or Ray tasks."""
    cores = os.cpu_count() or 1
    slots = options.jobs or cores
    if options.on == "ray":
        from regrow.experiments.on_ray import RayExecutor

        return RayExecutor(slots, cores)
    from regrow.experiments.sweep import LocalExecutor

    return LocalExecutor(slots)


def conclude(outcomes: list[Any], folder: Path) -> int:
    """List failures; exit code 1 if there are any."""
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        print(f"failed: {outcome.job.key}: {outcome.error}")
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs finished; rows in {folder / 'runs.csv'}")
    return 1 if failed else 0


class Watch:
    """A bar with ETA for the whole grid, plain lines where there is no terminal."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.console = Console()
        columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("runs", total=total)

    def report(self, outcome: Any, done: int, total: int) -> None:
        """One run ended."""
        state = f"failed, {outcome.error}" if outcome.error else f"finished in {outcome.seconds:.0f} s"
        self.console.print(f"[{done}/{total}] {outcome.job.key}: {state}", highlight=False, markup=False)
        self.progress.update(self.task, completed=done, total=total)

    def __enter__(self) -> Watch:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()
