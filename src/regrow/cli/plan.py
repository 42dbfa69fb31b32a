"""Show which layers are sparse and why, how dense they start, and how much work they are.

regrow plan cifar-vgg16-d --density 0.05
"""

from __future__ import annotations

import argparse

from regrow.cli.configured import add_configuration, read_configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow plan``."""
    add_configuration(parser)


def run(options: argparse.Namespace) -> int:
    """Build the model, sparsify it, print the table."""
    config = read_configuration(options)
    from rich.console import Console

    from regrow.training.plan import plan_of

    Console().print(plan_of(config))
    return 0
