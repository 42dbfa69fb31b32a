"""Show which layers are sparse and why, how dense they start, and how much work they are.

regrow plan cifar-vgg16-d --density 0.05
regrow plan cifar-vgg16-d --density 0.05 --execution sparse --memory    bytes of weights, gradients, state, lists, masks, activations
"""

from __future__ import annotations

import argparse

from regrow.cli.configured import add_configuration, read_configuration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow plan``."""
    parser.add_argument(
        "--memory", action="store_true", help="bytes per layer beside dense, instead of densities and work"
    )
    add_configuration(parser)


def run(options: argparse.Namespace) -> int:
    """Build the model, sparsify it, print the table."""
    config = read_configuration(options)
    from regrow.text import show
    from regrow.training.plan import memory_of, plan_of

    show(memory_of(config) if options.memory else plan_of(config))
    return 0
