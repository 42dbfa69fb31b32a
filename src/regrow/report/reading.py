"""A run's folder as data: configuration, rows, journal, result. Nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regrow.config import Config
from regrow.errors import StateError
from regrow.kinds import is_number
from regrow.topology.journal import Record
from regrow.training.folder import RunFolder
from regrow.training.forms import is_ending, is_metrics_row, is_speed_row, read_json
from regrow.training.ledger import read_rows
from regrow.training.metrics import is_record
from regrow.training.provenance import read_environment
from regrow.training.stored import read_config

Row = dict[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """What a run's folder holds; ``result`` is None while the run goes on, or where it ``diverged``."""

    folder: Path
    config: Config
    environment: dict[str, Any]
    metrics: list[Row]
    journal: list[Record]
    speed: list[Row]
    result: dict[str, Any] | None
    diverged: dict[str, Any] | None = None

    @property
    def step(self) -> int:
        """The last step that any row knows of."""
        return max((row["step"] for row in [*self.metrics, *self.speed]), default=0)

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in an epoch, from the first row that has both counts."""
        for row in self.metrics:
            if row["epoch"] > 0 and is_number(row["step"] / row["epoch"]):
                return round(row["step"] / row["epoch"])
        return None

    @property
    def total_steps(self) -> int | None:
        """Where the run ends."""
        if self.steps_per_epoch is None:
            return None
        planned = self.config.epochs * self.steps_per_epoch
        return min(planned, self.config.max_steps or planned)

    @property
    def journals_all(self) -> bool:
        """Whether the journal has every topology update; methods that rewire in each step record only some."""
        return len(self.journal) >= max((row.get("updates", 0) for row in self.metrics), default=0)

    def rows(self, kind: str) -> list[Row]:
        """The metrics of one kind: ``train``, ``validation`` or ``test``."""
        return [row for row in self.metrics if row["kind"] == kind]


def read_run(folder: Path) -> RunFiles:
    """Read a run's folder, finished or not."""
    if not folder.is_dir():
        raise StateError(f"{folder} is not a folder: give the folder that regrow train wrote, e.g. runs/lenet300-...")
    files = RunFolder(folder)
    return RunFiles(
        folder=folder,
        config=read_config(folder),
        environment=read_environment(files.environment),
        metrics=read_rows(files.metrics, is_metrics_row),
        journal=[Record.from_dict(row) for row in read_rows(files.topology, is_record)],
        speed=read_rows(files.speed, is_speed_row),
        result=read_json(files.result, is_ending),
        diverged=read_json(files.diverged, is_ending),
    )
