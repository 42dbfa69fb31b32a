"""What analyses work with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regrow.experiments.experiment import Cell, Experiment
from regrow.experiments.rows import Row
from regrow.experiments.tables import Line


@dataclass(frozen=True)
class Material:
    """Everything an analysis may need: all cells shown, the seeds asked for; ``measures``: may it run networks for what it lacks."""

    experiment: Experiment
    cells: list[Cell]
    seeds: list[int]
    table: list[Line]
    rows: Sequence[Row]
    folder: Path
    results: Path
    measures: bool = False
