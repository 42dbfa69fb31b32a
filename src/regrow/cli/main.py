"""Parse first, import later: help must appear at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from regrow import __version__
from regrow.errors import RegrowError

COMMANDS: dict[str, str] = {
    "train": "train a network; the same command again resumes",
    "evaluate": "test a finished or running run",
    "data": "list, fetch and check data sets",
    "plan": "show which layers are sparse, how dense, how much work",
    "methods": "list the methods",
    "sweep": "run a grid of configurations times seeds",
    "reproduce": "re-run a table or figure of the paper",
    "report": "write a run's report as one HTML file",
    "doctor": "show what this machine offers and what is missing",
}


def build_parser() -> argparse.ArgumentParser:
    """The whole command line, without importing torch."""
    parser = argparse.ArgumentParser(
        prog="regrow", description="Train neural networks that are sparse from the first step to the last."
    )
    parser.add_argument("--version", action="version", version=f"regrow {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = import_module(f"regrow.cli.{name}")
        command = commands.add_parser(
            name, help=summary, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors of the user's making are one line, not a traceback."""
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not hasattr(options, "overrides"):
        parser.error(f"unknown argument {rest[0]}: see regrow {options.command} --help")
    options.overrides = rest
    try:
        return options.run(options)
    except RegrowError as error:
        print(f"regrow {options.command}: {error}", file=sys.stderr)
        return 2
