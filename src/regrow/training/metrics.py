"""What a run records: rows that depend on the run alone (metrics) and rows that depend on the clock (speed).

``metrics.jsonl``, ``metrics.csv`` and ``topology.jsonl`` (the journal of topology updates) of a resumed run are byte for byte those of
an uninterrupted one; times go to ``speed.jsonl``.
"""

from __future__ import annotations

import csv
import io
import statistics
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from regrow.errors import CheckpointWarning
from regrow.files import append, write_atomically
from regrow.topology.journal import Record
from regrow.training.folder import RunFolder
from regrow.training.forms import is_metrics_row, is_speed_row
from regrow.training.ledger import Ledger, Mark, Row, read_rows

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
        files = RunFolder(folder)
        self.writes, self._table = writes, files.table
        self.rows: list[Row] = []
        self.journal: Sequence[Record] = []
        self._speed: list[Row] = []
        self._metrics = Ledger(files.metrics, lambda: self.rows, writes)
        self._topology = Ledger(files.topology, lambda: (record.as_dict() for record in self.journal), writes)
        self._times = Ledger(files.speed, lambda: self._speed, writes)
        self._evaluations: tuple[int, Mark] | None = None

    def recover(self, step: int, marks: Mapping[str, Any]) -> list[Record]:
        """Read the rows up to a step, which a resumed run continues from, and return its journal; damage is named in warnings.

        Evaluations at that very step are dropped: the run repeats them first. ``marks`` is what the checkpoint knows of the files.
        """
        known = {name: Mark.from_dict(marks.get(name)) for name in ("metrics", "topology")}
        old = read_rows(self._metrics.path, is_metrics_row, known["metrics"])
        self.rows = [row for row in old if row["step"] < step or (row["step"] == step and row["kind"] == "train")]
        self._speed = [row for row in read_rows(self._times.path, is_speed_row) if row["step"] <= step]
        if untimed := sorted(
            {row["step"] for row in self.rows if row["kind"] == "train"} - {row["step"] for row in self._speed}
        ):
            warnings.warn(
                f"{self._times.path} is damaged: {len(untimed)} rows are lost (first: step {untimed[0]}); weights and masks are not "
                "affected",
                CheckpointWarning,
                stacklevel=3,
            )
        rows = read_rows(self._topology.path, is_record, known["topology"])
        return [Record.from_dict(row) for row in rows]

    def restart(self, journal: Sequence[Record] = ()) -> None:
        """Write the rows that were recovered, and none after them; the journal is looked at again whenever the file must be repaired."""
        self.journal = journal
        if self.writes:
            write_atomically(self._table, _table(self.rows).encode())
        for ledger in (self._metrics, self._topology, self._times):
            ledger.restart()

    def add(self, **row: Any) -> None:
        """Record a row that depends on the run alone."""
        if row["kind"] != "train" and (self._evaluations is None or self._evaluations[0] != row["step"]):
            self._evaluations = row["step"], self._metrics.mark()
        self.rows.append(row)
        self._metrics.add(row)
        if self.writes:
            try:
                append(self._table, _table([row], header=False).encode())
            except FileNotFoundError:
                write_atomically(self._table, _table(self.rows).encode())

    def add_update(self) -> None:
        """Record the last topology update of the journal."""
        self._topology.add(self.journal[-1].as_dict())

    def add_speed(self, **row: Any) -> None:
        """Record a row that depends on the clock."""
        self._speed.append(row)
        self._times.add(row)

    def median_speed(self) -> float | None:
        """Images per second: the median over the rows; None before the first."""
        speeds = [row["images_per_second"] for row in self._speed if "images_per_second" in row]
        return statistics.median(speeds) if speeds else None

    def marks(self, step: int) -> dict[str, Any]:
        """What a checkpoint of this step keeps of the files: the rows that a resumed run would keep, so without evaluations at the step."""
        evaluated = self._evaluations is not None and self._evaluations[0] == step
        metrics = self._evaluations[1] if evaluated and self._evaluations else self._metrics.mark()
        return {"metrics": metrics.as_dict(), "topology": self._topology.mark().as_dict()}

    def sync(self) -> None:
        """Wait until the disk has all rows: a checkpoint must not outlive them."""
        for ledger in (self._metrics, self._topology, self._times):
            ledger.sync()


def is_record(row: Row) -> bool:
    """Whether a row is one of ``topology.jsonl``."""
    try:
        return bool(Record.from_dict(row))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False


def _table(rows: list[dict[str, Any]], header: bool = True) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
