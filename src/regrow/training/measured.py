"""A run that also measures what sparse convolutions could save: ``measure_speedup = true``.

Segments go to ``speedup.jsonl``, the estimates over the whole run to ``result.json``. The result of training is the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regrow.analysis.speedup import SpeedupRecorder
from regrow.config import Config
from regrow.errors import ConfigurationError
from regrow.files import write_atomically
from regrow.training.claim import refuse_others
from regrow.training.evaluation import Scores
from regrow.training.processes import Processes
from regrow.training.resume import refusing
from regrow.training.run import Run, View


class MeasuredRun(Run):
    """A training run whose convolutions are watched; the measurements are part of its checkpoints."""

    def __init__(
        self, config: Config, folder: Path, processes: Processes | None = None, view: View | None = None
    ) -> None:
        if config.compile:
            raise ConfigurationError("measure_speedup times single layers, which compile fuses: switch one of them off")
        super().__init__(config, folder, processes, view)
        self.recorder = SpeedupRecorder(self.parts.network, rerun=config.sparse.execution != "masked")
        self._written = -1
        saved = self.checkpoints.latest() if self.resumed_from is not None else None
        if saved is not None:
            with refusing(self.checkpoints.folder):
                self.recorder.load(saved[1]["speedup"])

    def _claim_folder(self) -> None:
        """Refuse also a run that has not measured from its start."""
        refuse_others(self.folder, self.config, self.checkpoints)
        found = self.checkpoints.latest()
        if found is not None and "speedup" not in found[1]:
            raise ConfigurationError(
                f"{self.folder} holds a run without measure_speedup: estimates over the rest of it would pass for the whole. "
                "Measure in another folder (--out)"
            )
        super()._claim_folder()

    def train(self) -> dict[str, Any] | None:
        """Train with the recorder attached."""
        with self.recorder:
            return super().train()

    def state(self) -> dict[str, Any]:
        """The run's state and the measurements so far."""
        return {**super().state(), "speedup": self.recorder.state()}

    def _train_step(self, *batch: Any) -> None:
        super()._train_step(*batch)
        if len(self.recorder.segments) != self._written:
            self._written = len(self.recorder.segments)
            self._write(self.recorder.segments)

    def _result(self, scores: Scores) -> dict[str, Any]:
        self._write(self.recorder.rows())
        return {**super()._result(scores), "speedup": self.recorder.speedups()}

    def _write(self, rows: list[dict[str, Any]]) -> None:
        if self.processes.leads:
            write_atomically(self.files.speedups, "".join(json.dumps(row) + "\n" for row in rows).encode())
