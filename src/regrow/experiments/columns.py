"""Small tables as files: CSV with fixed columns, whole or absent."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regrow.errors import StateError
from regrow.files import write_atomically


def read_table(path: Path, columns: Sequence[str], what: str) -> list[dict[str, str]]:
    """The rows of a file that `write_table` wrote; none if there is no file."""
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != tuple(columns):
            raise StateError(f"{path} is not a table of {what}: remove it, and it is made again")
        return list(reader)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows under these columns, leaving out what has none."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
