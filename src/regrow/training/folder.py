"""The files of a run: one owner of their names. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regrow.errors import StateError


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what.

    Example:
        >>> RunFolder(Path("runs/a")).result.as_posix()
        'runs/a/result.json'
    """

    path: Path

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.path / "config.toml"

    @property
    def environment(self) -> Path:
        """What the run was made on: machine, torch, code."""
        return self.path / "environment.json"

    @property
    def description(self) -> tuple[Path, Path]:
        """What a run writes before it exists."""
        return self.config, self.environment

    @property
    def metrics(self) -> Path:
        """Rows that depend on the run alone."""
        return self.path / "metrics.jsonl"

    @property
    def table(self) -> Path:
        """The same rows for spreadsheets."""
        return self.path / "metrics.csv"

    @property
    def topology(self) -> Path:
        """The journal of topology updates."""
        return self.path / "topology.jsonl"

    @property
    def speed(self) -> Path:
        """Rows that depend on the clock."""
        return self.path / "speed.jsonl"

    @property
    def speedups(self) -> Path:
        """What sparse convolutions could save (``measure_speedup``)."""
        return self.path / "speedup.jsonl"

    @property
    def result(self) -> Path:
        """How the run ended."""
        return self.path / "result.json"

    @property
    def diverged(self) -> Path:
        """Stands in for the result where the loss became NaN or infinite, or the network collapsed."""
        return self.path / "diverged.json"

    @property
    def endings(self) -> tuple[Path, Path]:
        """One of them exists where the run has ended."""
        return self.result, self.diverged

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints: states from which the run can go on."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The run as one page."""
        return self.path / "report.html"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's events."""
        return self.path / "tensorboard"

    @property
    def shipped(self) -> Path:
        """The trained network as a sparse file."""
        return self.path / "model.safetensors"

    def required(self) -> RunFolder:
        """This folder; an error where no run ever was in it."""
        if not self.config.is_file():
            raise StateError(
                f"{self.path} is not the folder of a run (no {self.config.name} in it): name one that regrow train wrote"
            )
        return self
