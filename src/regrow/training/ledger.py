"""Files of rows that only grow: how long one is, with which hash, and what of it is left after damage.

A checkpoint keeps the mark of each such file instead of its rows. Damage never stops a run: rows that cannot be read are named and left
out.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regrow.errors import CheckpointWarning
from regrow.files import append, write_atomically

Row = dict[str, Any]
Test = Callable[[Row], bool]
_NAMED_LINES = 8


@dataclass(frozen=True)
class Mark:
    """The first so many rows of a file: their number, their bytes, and the SHA-256 of these."""

    rows: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)

    @staticmethod
    def from_dict(data: Any) -> Mark | None:
        """From a checkpoint; None where it has none, or one of another form."""
        try:
            mark = Mark(**data)
        except TypeError:
            return None
        return mark if isinstance(mark.rows, int) and isinstance(mark.bytes, int) else None


class Ledger:
    """One file of rows, kept in step with its mark.

    Args:
        path: of the file.
        rows: all rows, from memory, to write the file anew if somebody removes or cuts it while the run goes on.
        writes: whether this process writes.
    """

    def __init__(self, path: Path, rows: Callable[[], Iterable[Row]], writes: bool = True) -> None:
        self.path, self.writes, self._rows = path, writes, rows
        self._count, self._bytes, self._hash = 0, 0, hashlib.sha256()

    def restart(self) -> None:
        """Write all rows anew."""
        content = "".join(map(line, self._rows())).encode()
        self._count, self._bytes, self._hash = content.count(b"\n"), len(content), hashlib.sha256(content)
        if self.writes:
            write_atomically(self.path, content)

    def add(self, row: Row) -> None:
        """Append a row, which the rows in memory have already."""
        content = line(row).encode()
        self._count, self._bytes = self._count + 1, self._bytes + len(content)
        self._hash.update(content)
        if self.writes:
            try:
                append(self.path, content)
            except FileNotFoundError:
                self._repair()

    def mark(self) -> Mark:
        """What a checkpoint keeps of the rows so far."""
        return Mark(self._count, self._bytes, self._hash.hexdigest())

    def sync(self) -> None:
        """Wait until the disk has all rows: a checkpoint must not outlive them."""
        try:
            if self.path.stat().st_size == self._bytes:
                append(self.path, b"", sync=True)
                return
        except FileNotFoundError:
            pass
        self._repair()

    def _repair(self) -> None:
        warnings.warn(
            f"{self.path} was removed or changed by another program: written anew", CheckpointWarning, stacklevel=4
        )
        self.restart()


def line(row: Row) -> str:
    """One row as it stands in a file."""
    return json.dumps(row) + "\n"


def read_rows(path: Path, test: Test | None = None, mark: Mark | None = None) -> list[Row]:
    """The rows of a file, those up to ``mark`` if given. A last line cut off by a crash is left out; other damage is named in a warning.

    Args:
        path: of the file; there may be none.
        test: whether a row is of the form that this file has.
        mark: what a checkpoint knows of the file.
    """
    content = path.read_bytes() if path.is_file() else b""
    if mark is not None and hashlib.sha256(content[: mark.bytes]).hexdigest() == mark.sha256:
        content, mark = content[: mark.bytes], None
    rows, bad = _parse(content, test)
    if mark is not None:
        rows = rows[: mark.rows]
        _warn_of_loss(path, mark.rows - len(rows), mark.rows, bad)
    elif bad:
        _warn_of_loss(path, len(bad), len(rows) + len(bad), bad)
    return rows


def last_row(path: Path, test: Test) -> Row | None:
    """The last row that can be read of a file that may be written to right now."""
    rows, _ = _parse(path.read_bytes() if path.is_file() else b"", test)
    return rows[-1] if rows else None


def _parse(content: bytes, test: Test | None) -> tuple[list[Row], list[int]]:
    """Rows that can be read, and numbers of lines that cannot."""
    rows, bad = [], []
    lines = content.split(b"\n")
    for number, text in enumerate(lines, 1):
        try:
            row = json.loads(text)
            fits = isinstance(row, dict) and (test is None or test(row))
        except (ValueError, RecursionError):
            fits = False
        if fits:
            rows.append(row)
        elif number < len(lines):  # what stands behind the last newline was cut off
            bad.append(number)
    return rows, bad


def _warn_of_loss(path: Path, lost: int, total: int, bad: list[int]) -> None:
    shown = ", ".join(map(str, bad[:_NAMED_LINES])) + (", ..." if len(bad) > _NAMED_LINES else "")
    lines = f" (unreadable: line{'s' * (len(bad) > 1)} {shown})" if bad else ""
    what = (
        f"{lost} of {total} rows are lost{lines}"
        if lost > 0
        else f"some of its {total} rows are not those that the run wrote"
    )
    warnings.warn(f"{path} is damaged: {what}; weights and masks are not affected", CheckpointWarning, stacklevel=4)
