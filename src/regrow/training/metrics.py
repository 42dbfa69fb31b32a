"""What a run records: rows that depend on the run alone (metrics) and rows that depend on the clock (speed).

``metrics.jsonl``, ``metrics.csv`` and ``topology.jsonl`` (the journal of topology updates) of a resumed run are byte for byte those of
an uninterrupted one; times go to ``speed.jsonl``.
"""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regrow.files import write_atomically

# Stands in for result.json where the loss became NaN or infinite, or the network collapsed.
DIVERGED = "diverged.json"
COLUMNS = ("kind", "step", "epoch", "loss", "accuracy", "top5", "lr", "density", "prune_rate", "updates")


def at_chance(accuracy: float, classes: int) -> bool:
    """Whether an accuracy is no better than naming the most frequent class, which has 11 to 12% of the ten-class data sets here.

    Example:
        >>> at_chance(0.1135, 10), at_chance(0.5, 10), at_chance(float("nan"), 10)
        (True, False, True)
    """
    return not accuracy > 1.25 / classes


class MetricLog:
    """Append-only rows in a run's folder."""

    def __init__(self, folder: Path, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self.rows: list[dict[str, Any]] = []
        self._speeds: list[float] = []

    def restart(self, step: int, updates: Sequence[dict[str, Any]]) -> None:
        """Keep the rows up to a step, which a resumed run continues from, and drop later ones.

        Evaluations at that very step are dropped too: the run repeats them first. ``updates`` is the journal at that step; the
        number of the step cannot tell, since a topology update may stand before or after the step of its number.
        """
        old = read_rows(self.folder / "metrics.jsonl")
        self.rows = [row for row in old if row["step"] < step or (row["step"] == step and row["kind"] == "train")]
        timed = [row for row in read_rows(self.folder / "speed.jsonl") if row["step"] <= step]
        self._speeds = [row["images_per_second"] for row in timed if "images_per_second" in row]
        if self.writes:
            write_atomically(self.folder / "metrics.jsonl", "".join(map(_line, self.rows)).encode())
            write_atomically(self.folder / "metrics.csv", _table(self.rows).encode())
            write_atomically(self.folder / "topology.jsonl", "".join(map(_line, updates)).encode())
            write_atomically(self.folder / "speed.jsonl", "".join(map(_line, timed)).encode())

    def add(self, **row: Any) -> None:
        """Record a row that depends on the run alone."""
        self.rows.append(row)
        self._append("metrics.jsonl", _line(row))
        self._append("metrics.csv", _table([row], header=False))

    def add_update(self, record: dict[str, Any]) -> None:
        """Record a topology update."""
        self._append("topology.jsonl", _line(record))

    def add_speed(self, **row: Any) -> None:
        """Record a row that depends on the clock."""
        self._speeds += [row["images_per_second"]] if "images_per_second" in row else []
        self._append("speed.jsonl", _line(row))

    def median_speed(self) -> float | None:
        """Images per second: the median over the rows; None before the first."""
        return statistics.median(self._speeds) if self._speeds else None

    def sync(self) -> None:
        """Wait until the disk has all rows: a checkpoint must not outlive them."""
        for name in ("metrics.jsonl", "metrics.csv", "topology.jsonl"):
            with open(self.folder / name, "a") as file:
                os.fsync(file.fileno())

    def _append(self, name: str, text: str) -> None:
        if self.writes:
            with open(self.folder / name, "a", encoding="utf-8") as file:
                file.write(text)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSONL file; a last line cut off by a crash is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row) + "\n"


def _table(rows: list[dict[str, Any]], header: bool = True) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
