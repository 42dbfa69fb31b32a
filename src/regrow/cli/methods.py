"""List the methods: paper, budget rule, what they need."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow methods``."""
    parser.add_argument("name", nargs="?", help="show one method's documentation and options")


def run(options: argparse.Namespace) -> int:
    """Print the table, or one method."""
    import regrow
    from regrow.errors import unknown
    from regrow.methods import METHODS

    if options.name is None:
        regrow.list_methods()
        return 0
    if options.name not in METHODS:
        raise unknown("method", options.name, METHODS)
    import inspect

    factory = METHODS[options.name]
    given = (option.replace(annotation=option.empty) for option in inspect.signature(factory).parameters.values())
    print(f"{options.name}({', '.join(map(str, given))})\n\n{inspect.getdoc(factory)}")
    return 0
