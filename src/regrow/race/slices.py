"""One entry of a race, a slice at a time: trained seconds and multiply-accumulates, and the error after each slice."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regrow.environment import machine
from regrow.errors import DivergenceError
from regrow.files import write_atomically
from regrow.marks import count_of
from regrow.race import topologies
from regrow.race.entries import DENSE, Entry
from regrow.training.run import Run
from regrow.uses import evaluation_mode, uses_per_weight

_PENDING = "slice.json"
_EVAL_BATCH = 500
KEPT = 10
SLICES = 20


class Stopper:
    """Watches a run: adds up seconds and work of its steps, and asks it to stop at the end of a slice.

    Training work by RigL's rules: a step is three products of the forward pass's size, of which the weight gradient is dense where
    gradients of missing weights are collected.
    """

    def __init__(self, size: int, seconds: float = 0.0, macs: float = 0.0, collected: int = 0) -> None:
        self.size, self.seconds, self.macs, self.collected = size, seconds, macs, collected
        self._uses: dict[nn.Parameter, float] = {}
        self._sparse, self._seen, self._open = 0.0, -1, False

    def started(self, run: Run) -> None:
        """The clock runs from here on; checkpoints and evaluation lie outside."""
        self._open = run.parts.handle.needs_missing_gradients
        self._last = time.perf_counter()

    def stepped(self, run: Run) -> None:
        """One step is done."""
        now = time.perf_counter()
        self.seconds, self._last = self.seconds + now - self._last, now
        forward, dense = self.forward(run)
        batch = run.config.data.batch
        self.macs += batch * (2 * forward + (dense if self._open else forward))
        self.collected += self._open
        self._open = run.parts.handle.needs_missing_gradients
        if run.step % self.size == 0 or run.finished:
            run.stop_requested = True
            record = {"step": run.step, "seconds": self.seconds, "macs": self.macs, "collected": self.collected}
            write_atomically(run.folder / _PENDING, json.dumps(record).encode())

    def forward(self, run: Run) -> tuple[float, float]:
        """Multiply-accumulates of one sample's forward pass with present weights, and with all."""
        handle = run.parts.handle
        if not self._uses:
            self._uses = uses_per_weight(run.parts.network, torch.zeros(1, *run.parts.train.shape))
        if self._seen != handle.updates:
            masks = {sparse.parameter: sparse.mask for sparse in handle.parameters}
            self._sparse = sum(per * (count_of(masks[p]) if p in masks else p.numel()) for p, per in self._uses.items())
            self._seen = handle.updates
        return self._sparse, sum(per * p.numel() for p, per in self._uses.items())

    def row(self, run: Run, row: dict[str, Any]) -> None:
        """Rows are in the run's own files."""

    def _nothing(self, run: Run) -> None:
        """No matter to a race."""

    updated = chosen = stopped = _nothing

    def finished(self, run: Run, result: dict[str, Any]) -> None:
        """The result is in the run's own file."""


class Runner:
    """One entry with its run in memory.

    Args:
        entry: the setting.
        folder: of the run.
        size: steps of a slice; None: an epoch, or less where that gives fewer than 20 slices.
        rows: what the race knows of this entry.
        images: how many held-out images give the error after a slice.
    """

    def __init__(self, entry: Entry, folder: Path, size: int | None, rows: list[dict[str, Any]], images: int) -> None:
        self.entry, self.folder, self.images = entry, folder, images
        self.run = Run(entry.config, folder)
        self.rows = [row for row in rows if row["step"] <= self.run.step]
        known: dict[str, Any] = self.rows[-1] if self.rows else {"step": 0, "seconds": 0.0, "macs": 0.0, "collected": 0}
        pending = folder / _PENDING
        ended = json.loads(pending.read_text()) if pending.is_file() else known
        unnoted = ended["step"] == self.run.step != known["step"]  # ended between its checkpoint and its row
        known = ended if unnoted else known
        size = size or max(1, min(self.run.steps_per_epoch, self.run.total_steps // SLICES))
        self.stopper = Stopper(size, known["seconds"], known["macs"], known.get("collected", 0))
        self.run.view = self.stopper
        self._held: tuple[Tensor, Tensor] | None = None
        if not self.run.step:
            self._keep_masks()
        if unnoted:
            self._note()

    @property
    def over(self) -> bool:
        """Whether nothing is left to train."""
        return self.run.finished or any(row.get("diverged") for row in self.rows)

    def slice(self) -> dict[str, Any]:
        """Train a slice; the row it adds."""
        self.run.stop_requested = False
        try:
            self.run.train()
        except DivergenceError as error:
            self.rows.append({**self._row(), "error": None, "diverged": str(error)})
            return self.rows[-1]
        return self._note()

    def result(self) -> dict[str, Any]:
        """The run's own result: the error on the whole test set."""
        saved = self.run.files.result
        if not saved.is_file():
            self.run.stop_requested = False
            self.run.train()
        return json.loads(saved.read_text())

    def _keep_masks(self) -> None:
        if self.entry.config.sparse.method != DENSE:
            every = max(1, self.run.total_steps // KEPT)
            topologies.keep(self.folder, self.run.step, self.run.parts.handle, every)

    def _note(self) -> dict[str, Any]:
        self._keep_masks()
        self.rows.append({**self._row(), "error": self._error()})
        return self.rows[-1]

    def _row(self) -> dict[str, Any]:
        run = self.run
        forward, dense = self.stopper.forward(run)
        return {
            "setting": self.entry.label,
            "seed": self.entry.config.seed,
            "step": run.step,
            "epoch": run.step / run.steps_per_epoch,
            "seconds": self.stopper.seconds,
            "macs": self.stopper.macs,
            "collected": self.stopper.collected,
            "macs_share": forward / dense if dense else None,
            "density": run.parts.handle.density,
            "updates": run.parts.handle.updates,
            "machine": machine(),
            "code": run.code,
        }

    @torch.no_grad()
    def _error(self) -> float:
        """Error in % on the first held-out images."""
        if self._held is None:
            parts = self.run.parts
            source = parts.test if parts.validation is None else parts.validation
            self._held = next(source.batches(batch_size=min(self.images, len(source))))
        images, labels = self._held
        with evaluation_mode(self.run.parts.network):
            chunks = zip(images.split(_EVAL_BATCH), labels.split(_EVAL_BATCH), strict=True)
            wrong = sum(int((self.run.parts.network(x).argmax(1) != y).sum()) for x, y in chunks)
        return 100 * wrong / len(labels)
