"""List, fetch and check data sets.

regrow data                     what there is, where it is, and whether it is what was published
regrow data get mnist           fetch from the first source that answers, verify, cache
regrow data get cifar10 --root /somewhere/with/the/files
regrow data check mnist         compare with the published SHA-256, fetching nothing
regrow data check my.npz        read your own data and show what they are
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow data``."""
    parser.add_argument("action", nargs="?", choices=("list", "get", "check"), default="list")
    parser.add_argument("name", nargs="?", help="data set to get or check, or the path of your own")
    parser.add_argument("--root", type=Path, help="local folder that has the files")


def run(options: argparse.Namespace) -> int:
    """List, get or check."""
    from regrow import data
    from regrow.errors import ConfigurationError

    if options.action != "list" and options.name is None:
        raise ConfigurationError(f"name a data set: regrow data {options.action} mnist")
    if options.action == "get":
        print(f"{options.name} is in {data.get(options.name, root=options.root)}")
    elif options.action == "check":
        _check(options.name, options.root)
    else:
        _list()
    return 0


def _list() -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from regrow import data
    from regrow.data.status import status

    table = Table("name", "description", "here")
    for info in data.list_datasets():
        table.add_row(info.name, info.description, escape(status(info)))
    Console().print(table)


def _check(name: str, root: Path | None) -> None:
    """Content of fetched data against what was published; of other data, what `train` would read."""
    from regrow import data
    from regrow.data import catalogue
    from regrow.data.errors import UnreadableError
    from regrow.data.status import is_verified, status

    record = catalogue.find(name)
    if record is not None and record.files:
        if not is_verified(record):
            raise data.DataError(f"{name}: {status(record)}")
        print(f"{name}: {status(record)}")
        return
    problems: list[str] = []
    for split in ("train", "val", "test"):
        try:
            found = data.load(name, split, root=root)
        except data.DataError as error:
            if split != "test":
                raise
            print(error)
            continue
        print(found)
        problems += found.problems()
    if problems:
        raise UnreadableError(problems)
