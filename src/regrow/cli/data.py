"""List, fetch and check data sets.

regrow data                     what there is
regrow data get mnist           fetch from the first source that answers, verify, cache
regrow data get cifar10 --root /somewhere/with/the/files
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow data``."""
    parser.add_argument("action", nargs="?", choices=("list", "get"), default="list")
    parser.add_argument("name", nargs="?", help="data set to get")
    parser.add_argument("--root", type=Path, help="local folder that has the files")


def run(options: argparse.Namespace) -> int:
    """List or get."""
    from regrow import data
    from regrow.errors import ConfigurationError

    if options.action == "get":
        if options.name is None:
            raise ConfigurationError("name a data set: regrow data get mnist")
        print(f"{options.name} is in {data.get(options.name, root=options.root)}")
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "description")
    for info in data.list_datasets():
        table.add_row(info.name, info.description)
    Console().print(table)
    return 0
