"""Race dense training against sparse settings: same schedule, same machine, in alternating slices.

    regrow race cifar10 --model alexnet-s --settings dense,sparse-momentum@0.1,sparse-momentum@0.1:macs=0.05 --epochs 10
    regrow race mnist --model lenet300 --settings dense,rigl@0.05,set@0.05:distribution=uniform --epochs 5 --seeds 3

A setting is dense, or METHOD@DENSITY, with keys of the configuration or the method's options behind colons. The same command again
resumes; the outcome is a table, race.html, race.png and rows.jsonl in --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regrow.cli.configured import EPILOGUE
from regrow.cli.width import columns, fitted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow race``."""
    parser.add_argument("data", help="a data set (cifar10, mnist, mnist-sample), a preset or a TOML file")
    parser.add_argument(
        "--settings", required=True, help="who races: dense,METHOD@DENSITY,METHOD@DENSITY:KEY=VALUE,..."
    )
    parser.add_argument("--seeds", type=int, default=1, help="runs of each setting (default 1)")
    parser.add_argument(
        "--slice", type=int, default=0, help="steps of a slice (default: a twentieth of the run, at most an epoch)"
    )
    parser.add_argument(
        "--images", type=int, default=1000, help="held-out images for the error after a slice (default 1000)"
    )
    parser.add_argument(
        "--clock",
        type=int,
        default=0,
        metavar="ROUNDS",
        help="after the race, time steps of all entries at the masks they kept, in alternation, so many times (on a quiet machine)",
    )
    parser.add_argument(
        "--execution",
        choices=("masked", "sparse", "auto"),
        help="of sparse settings (default: sparse where kernels are built)",
    )
    parser.add_argument("--out", type=Path, help="folder of the race (default: runs/race-<data>-<model>-<hash>)")
    parser.set_defaults(overrides={})
    parser.epilog = fitted(EPILOGUE, columns())


def run(options: argparse.Namespace) -> int:
    """Race."""
    from regrow.errors import ConfigurationError

    for name in ("seeds", "images"):
        if getattr(options, name) < 1:
            raise ConfigurationError(f"--{name} must be at least 1, got {getattr(options, name)}")
    for name in ("slice", "clock"):
        if getattr(options, name) < 0:
            raise ConfigurationError(f"--{name} must not be negative, got {getattr(options, name)}")
    from regrow.race.command import race

    return race(options)
