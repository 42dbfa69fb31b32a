"""Train a network.

    regrow train mnist-lenet300 --density 0.05 --epochs 3
    regrow train my-run.toml --seed 1 --out runs/second
    torchrun --nproc-per-node 2 -m regrow train mnist-lenet5

The same command again resumes from the newest checkpoint. Ctrl-C saves and stops. Layers compute dense or on sparse kernels, whichever
is measured to be faster after the first step (--execution auto); the bits of --execution masked do not depend on a stopwatch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from regrow.cli.configured import add_configuration, read_for_training
from regrow.cli.places import place
from regrow.config import Config, to_toml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow train``."""
    add_configuration(parser, execution="auto")
    parser.add_argument(
        "--out",
        type=place,
        help="folder of the run (default: runs/<model>-<method>-<density>-s<seed>-<hash>, with -<max steps> and -measured if given)",
    )
    parser.add_argument("--list", action="store_true", help="list the presets and stop")
    parser.add_argument("--show", action="store_true", help="print the effective configuration and stop")


def run(options: argparse.Namespace) -> int:
    """Train."""
    if options.list:
        return _list()
    config = read_for_training(options)
    if options.show:
        print(to_toml(config), end="")
        return 0
    from regrow.training.main import train

    return train(config, options.out or default_folder(config))


def default_folder(config: Config) -> Path:
    """A folder name that says what it is and differs between configurations."""
    return Path("runs") / config.folder_name()


def _list() -> int:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from regrow.presets import PRESETS

    console = Console()
    gap = 0 if console.width < 90 else 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)
    for column in ("preset", "data", "epochs", "batch", "density", "scope"):
        words = column in ("preset", "data", "scope")
        table.add_column(column, justify="left" if words else "right", no_wrap=True, overflow="fold")
    for name, c in PRESETS.items():
        cells = (c.data.name, c.epochs, c.data.batch, f"{100 * c.sparse.density:.4g}%", c.sparse.scope)
        table.add_row(name, *map(str, cells))
    console.print(table)
    return 0
