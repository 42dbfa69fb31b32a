"""Run a grid of configurations times seeds, side by side, resumable.

    regrow sweep mnist-lenet300 --grid density=0.01,0.05 --grid option.prune_rate=0.2,0.5 --seeds 5 --epochs 10
    regrow sweep mnist-lenet5 --grid method=rigl,set --seeds 0-2 --on ray

Finished runs are never repeated; killed ones continue. Rows are collected in OUT/runs.csv.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regrow.cli.configured import add_configuration, read_configuration
from regrow.cli.places import place

if TYPE_CHECKING:
    from regrow.experiments.sweep import Executor, Outcome

STOPPED = 130


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
    parser.add_argument(
        "--seeds", help="a count (5), a range (0-9) or a list (0,3); default: that of the configuration"
    )
    parser.add_argument("--out", type=place, default=Path("runs/sweep"), help="folder of the sweep")
    add_execution(parser)


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Where and how many at once."""
    parser.add_argument("--jobs", type=int, help="runs side by side (default: one per GPU, else one per core)")
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
    from regrow.experiments.watch import SweepWatch

    base = read_configuration(options)
    seeds = parse_seeds(options.seeds) if options.seeds else [base.seed]
    jobs = expand(base, parse_grid(options.grid), seeds)
    try:
        with executor_of(options) as executor, SweepWatch() as watch:
            outcomes = sweep(jobs, options.out, executor, watch)
    except KeyboardInterrupt:
        return stopped()
    return conclude(outcomes, options.out, options.out)


@contextmanager
def executor_of(options: argparse.Namespace) -> Iterator[Executor]:
    """Local processes or Ray tasks, stopped at the end, and when the process is asked to stop."""
    from regrow.environment import cores, gpus
    from regrow.errors import ConfigurationError
    from regrow.experiments.sweep import LocalExecutor, interruptible

    found = gpus()
    slots = len(found) or cores() if options.jobs is None else options.jobs
    if slots < 1:
        raise ConfigurationError(f"--jobs must be at least 1, got {slots}")
    with interruptible():
        executor: Any = None
        try:
            if options.on == "ray":
                from regrow.experiments.on_ray import RayExecutor

                executor = RayExecutor(slots)
            else:
                executor = LocalExecutor(slots, found)
            yield executor
        finally:
            if executor is not None:
                executor.stop()


def conclude(outcomes: list[Outcome], folder: Path, results: Path) -> int:
    """List failures, each message once, and where to look; exit code 1 if there are any."""
    from regrow.experiments.sweep import OUTPUT

    failed = [outcome for outcome in outcomes if outcome.error]
    for message in dict.fromkeys(outcome.error for outcome in failed):
        print(f"failed twice: {message}")
        for outcome in failed:
            if outcome.error == message:
                print(f"    {folder / outcome.job.key / OUTPUT}")
    diverged = sum(bool(outcome.diverged) for outcome in outcomes)
    aside = f", {diverged} diverged" if diverged else ""
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} runs finished{aside}; rows in {results / 'runs.csv'}")
    return 1 if failed else 0


def stopped() -> int:
    """Say how to go on."""
    print("stopped; the same command continues")
    return STOPPED
