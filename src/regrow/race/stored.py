"""A race as its files tell it: rows, errors on the test set, readings of the clock. Nothing is trained or timed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regrow.files import write_atomically
from regrow.race.seconds import Reading, clocked
from regrow.race.standing import Row, Standing, standings

ROWS, RESULTS, CLOCK = "rows.jsonl", "results.jsonl", "clock.jsonl"


@dataclass(frozen=True)
class Outcome:
    """Rows of all runs, with the clock's seconds if all of them were timed, and a line per setting."""

    rows: list[Row]
    lines: list[Standing]
    timed: bool


def outcome(rows: Sequence[Row], results: Mapping[tuple[str, int], float], readings: Sequence[Reading]) -> Outcome:
    """What rows, test errors by setting and seed, and readings say together."""
    runs, timed = ({(r["setting"], r["seed"]) for r in found} for found in (rows, readings))
    shown = clocked(rows, readings) if runs <= timed else list(rows)
    return Outcome(shown, standings(shown, dict(results)), runs <= timed)


def read(folder: Path) -> Outcome:
    """The outcome of the race whose files are in a folder."""
    results = {(r["setting"], r["seed"]): r["test_error"] for r in read_lines(folder / RESULTS)}
    return outcome(read_lines(folder / ROWS), results, read_lines(folder / CLOCK))


def write_results(folder: Path, results: Mapping[tuple[str, int], float]) -> None:
    """Keep the errors on the test set."""
    write_lines(
        folder / RESULTS, [{"setting": name, "seed": seed, "test_error": e} for (name, seed), e in results.items()]
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records in a file, a line of JSON each; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def write_lines(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write records, a line of JSON each."""
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in records).encode())
