"""One run: train, record, save, resume.

restore the newest whole checkpoint, or start
for each step:      lr and randomness from the step number -> batch -> loss -> (not finite: stop) -> backward -> optimizer.step()
now and then:       a row of metrics; a checkpoint; a stop if asked to
after each epoch:   validation
at the end:         test, result.json

A row of metrics is written before the checkpoint of its step, an evaluation after it: a resumed run repeats evaluations, not rows.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regrow.config import Config, to_toml
from regrow.data.errors import UnreadableError
from regrow.environment import code, describe, kernels
from regrow.execution.modules.compact import compact_form
from regrow.files import write_atomically
from regrow.randomness import seed_of
from regrow.state import export_state
from regrow.training import provenance
from regrow.training.checkpoint import Checkpoints
from regrow.training.claim import other_configuration, refuse_others
from regrow.training.evaluation import Scores, evaluate
from regrow.training.folder import RunFolder
from regrow.training.forms import sealed
from regrow.training.lap import Lap
from regrow.training.metrics import MetricLog
from regrow.training.optimisation import learning_rate
from regrow.training.pace import Pace
from regrow.training.processes import Processes
from regrow.training.resume import load, refusing
from regrow.training.setup import Parts, assemble
from regrow.training.tally import Tally
from regrow.training.watch import collapsed, refuse_collapse, refuse_non_finite, refuse_non_finite_scores


class View(Protocol):
    """Who watches a run."""

    def started(self, run: Run) -> None: ...  # noqa: D102
    def stepped(self, run: Run) -> None: ...  # noqa: D102
    def row(self, run: Run, row: dict[str, Any]) -> None: ...  # noqa: D102
    def updated(self, run: Run) -> None: ...  # noqa: D102
    def chosen(self, run: Run) -> None: ...  # noqa: D102
    def finished(self, run: Run, result: dict[str, Any]) -> None: ...  # noqa: D102
    def stopped(self, run: Run) -> None: ...  # noqa: D102


class Run:
    """A training run in a folder; the same configuration in the same folder resumes."""

    def __init__(
        self, config: Config, folder: Path, processes: Processes | None = None, view: View | None = None
    ) -> None:
        self.config, self.folder, self.view = config, folder, view
        self.files = RunFolder(folder)
        self.processes = processes or Processes()
        self.step = 0
        self.tally = Tally()
        self.pace = Pace()
        self.speed: float | None = None
        self.stop_requested = False
        self._agreed = False, False
        self._decided = False
        self.resumed_from: int | None = None
        self.code = code()
        self.checkpoints = Checkpoints(self.files.checkpoints, config.keep_checkpoints)
        self.log = MetricLog(folder, writes=self.processes.leads)
        self._claim_folder()
        self.parts: Parts = assemble(config, self.processes)
        self.lap = Lap(self.parts.traffic)
        self._parameters = list(self.parts.network.parameters())
        self._restore()
        self._start_clocks()

    # ---------------------------------------------------------------------------------------------- time

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self.parts.steps_per_epoch

    @property
    def total_steps(self) -> int:
        """Where the run ends."""
        planned = self.config.epochs * self.steps_per_epoch
        return min(planned, self.config.max_steps or planned)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.step >= self.total_steps

    @property
    def epoch(self) -> int:
        """Number of the current epoch, from 0."""
        return self.step // self.steps_per_epoch

    # ---------------------------------------------------------------------------------------------- training

    def train(self) -> dict[str, Any] | None:
        """Train to the end and return the result; None if stopped on request (after saving)."""
        self.began_at = self.step
        if self.processes.leads and not self.finished:
            self.files.result.unlink(missing_ok=True)  # that of an earlier, nearer end
            if not self.step:
                self._check_data()
        self._notify("started")
        self._start_clocks()
        if self.step and self.step % self.steps_per_epoch == 0:
            # A run killed between the last checkpoint of an epoch and its evaluation evaluates now.
            self._end_epoch()
        while self.step < self.total_steps:
            for images, labels in self._batches():
                self._train_step(images.to(self.processes.device), labels.to(self.processes.device))
                if self._housekeeping():
                    self.save()
                    self._notify("stopped")
                    return None
                if self.step >= self.total_steps:
                    break
            if self.step % self.steps_per_epoch == 0:
                self._end_epoch()
        return self._finish()

    def _check_data(self) -> None:
        """Files that cannot be read are named before training, not in the middle of it."""
        splits = (self.parts.train, self.parts.validation, self.parts.test)
        if problems := [problem for split in splits if split is not None for problem in split.problems(quick=True)]:
            raise UnreadableError(problems)

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        start = self.step % self.steps_per_epoch
        settings, me, sparse = self.config.data, self.processes, self.config.sparse.execution == "sparse"
        place = (self.epoch, settings.batch, self.config.seed, start, me.rank, me.world)
        return self.parts.train.batches(*place, samples_innermost=sparse)

    def _train_step(self, images: Tensor, labels: Tensor) -> None:
        parts, config = self.parts, self.config
        rate = learning_rate(config, self.step, self.steps_per_epoch)
        for group in parts.optimizer.param_groups:
            group["lr"] = rate
        self._seed()
        with self._precision():
            logits = parts.forward(images)
            loss = nn.functional.cross_entropy(logits.float(), labels, label_smoothing=config.label_smoothing)
        value = loss.item()
        if not self._agree(value):
            refuse_non_finite(parts.network, images, self.step, value)
        for parameter in self._parameters:
            parameter.grad = None
        (loss if self.processes.world == 1 else loss * self._weight(len(labels))).backward()
        if config.optimizer.clip_norm:
            nn.utils.clip_grad_norm_(self._parameters, config.optimizer.clip_norm)
        journaled, decided = len(parts.handle.journal), parts.handle.switch.verdicts
        parts.optimizer.step()
        seen = self._global_batch()
        self.pace.count(seen)
        self.lap.count(seen)
        self.step += 1
        self.tally.add(value, logits, labels)
        if len(parts.handle.journal) != journaled:
            self.log.add_update()
            self._notify("updated")
        if parts.handle.switch.verdicts != decided:
            self._decided = True
            self._notify("chosen")
        self._notify("stepped")

    def _seed(self) -> None:
        """Dropout and the like draw numbers that depend on (seed, step, rank) alone."""
        seed = seed_of(self.config.seed, "step", self.step, self.processes.rank)
        torch.default_generator.manual_seed(seed)
        if self.processes.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _weight(self, mine: int) -> float:
        """Factor on this process's mean loss, so that the average over processes is the mean over the global batch."""
        return mine * self.processes.world / self._global_batch()

    def _global_batch(self) -> int:
        """Images of the coming step in all processes; the last batch of an epoch may be smaller."""
        done = self.step % self.steps_per_epoch * self.config.data.batch
        return min(self.config.data.batch, len(self.parts.train) - done)

    def _agree(self, loss: float) -> bool:
        """Let processes agree on stopping and saving, as clocks and signals differ; whether the loss is finite in all of them."""
        flags = [not math.isfinite(loss), self.stop_requested, self._save_is_due()]
        if self.processes.world > 1:
            flags = [count > 0 for count in self.processes.sum([float(flag) for flag in flags])]
            self._agreed = flags[1], flags[2]
        return not flags[0]

    def _save_is_due(self) -> bool:
        return time.monotonic() - self._last_save > self.config.checkpoint_seconds

    def _precision(self) -> AbstractContextManager:
        if self.config.precision == "bf16":
            return torch.autocast(self.processes.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def _housekeeping(self) -> bool:
        """A row, a checkpoint, a stop: whatever is due. True if the run must stop now."""
        if self.step % self.config.log_every == 0 or self.step % self.steps_per_epoch == 0 or self.finished:
            self._training_row()
        stop, save = (self.stop_requested, self._save_is_due()) if self.processes.world == 1 else self._agreed
        # A stopwatch decides once: a resumed run must not measure again what steps were already computed with.
        if (save or self._decided) and not stop:
            self.save()
        return stop

    # ---------------------------------------------------------------------------------------------- recording

    def _training_row(self) -> None:
        loss, hits, samples = self.processes.sum(self.tally.values())
        if not samples:
            return
        self.tally = Tally()
        pace = self.pace.row()
        if pace is not None:
            self.speed = pace.rate
            self.log.add_speed(step=self.step, **self.lap.row(), images_per_second=self.speed)
        self._row("train", Scores(loss / samples, hits / samples, None, int(samples)))

    def _start_clocks(self) -> None:
        self._last_save = time.monotonic()
        self.lap.restart()
        self.pace.skip()

    def _row(self, kind: str, scores: Scores) -> None:
        handle = self.parts.handle
        row = {
            "kind": kind,
            "step": self.step,
            "epoch": self.step / self.steps_per_epoch,
            "loss": scores.loss,
            "accuracy": scores.accuracy,
            "top5": scores.top5,
            "lr": learning_rate(self.config, max(0, self.step - 1), self.steps_per_epoch),
            "density": handle.density,
            "prune_rate": handle.prune_rate,
            "updates": handle.updates,
        }
        self.log.add(**row)
        self._notify("row", row)

    def _end_epoch(self) -> None:
        self._training_row()
        every = self.epoch % self.config.evaluate_every == 0 or self.step == self.total_steps
        if self.parts.validation is not None and every:
            self._row("validation", self._evaluate(self.parts.validation))
            self._check_collapse(self.parts.validation.majority)

    def _check_collapse(self, majority: float) -> None:
        """End a run that learns nothing, as the leading process says, which alone has the rows from before a resume."""
        seen = [row["accuracy"] for row in self.log.rows if row["kind"] == "validation"]
        patience = self.config.patience
        if patience and self.processes.any(self.processes.leads and collapsed(seen, patience, majority)):
            refuse_collapse(self.step, seen[-1], patience)

    def _evaluate(self, dataset: Any) -> Scores:
        for buffer in self.parts.network.buffers():
            # Running statistics differ between processes; those of rank 0 count, and are saved.
            self.processes.broadcast(buffer)
        scores = evaluate(self.parts.network, dataset, self.config.data.eval_batch, self.processes)
        self.pace.skip()
        refuse_non_finite_scores(scores.loss, self.step)
        return scores

    def _finish(self) -> dict[str, Any]:
        if self.step == self.config.epochs * self.steps_per_epoch:  # not one that may go on
            self.parts.handle.finish()
        self.save()
        scores = self._evaluate(self.parts.test)
        self._row("test", scores)
        result = self._result(scores)
        if self.processes.leads:
            write_atomically(self.files.result, sealed(result))
        self._notify("finished", result)
        return result

    def _result(self, scores: Scores) -> dict[str, Any]:
        handle = self.parts.handle
        plan = handle.plan(torch.zeros(1, *self.parts.train.shape, device=self.processes.device))
        return {
            "test_accuracy": scores.accuracy,
            "test_error": 100 * (1 - scores.accuracy),
            "test_top5": scores.top5,
            "test_loss": scores.loss,
            "steps": self.step,
            "nonzeros": handle.nonzeros,
            "weights": handle.numel,
            "dense_weights": plan.dense_weights,
            "density": handle.density,
            "macs_share": plan.macs_share,
            "updates": handle.updates,
            "identity": self.config.identity(),
            "code": self.code,
            "execution": self.config.sparse.execution,
            "images_per_second": self.log.median_speed(),
        }

    # ---------------------------------------------------------------------------------------------- saving

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs to go on bit for bit; all processes must ask for it together."""
        parts = self.parts
        with compact_form():  # of layers that have one
            weights = parts.network.state_dict()
        return {
            "step": self.step,
            "identity": self.config.identity(),
            "world": self.processes.world,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "kernels": kernels(),
            "code": self.code,
            "tallies": self.processes.gather(self.tally.values()),
            "model": weights,
            "optimizer": parts.optimizer.state_dict()["state"],
            "sparse": export_state(parts.handle, journal=False),
            "rows": self.log.marks(self.step),
        }

    def save(self) -> None:
        """Write a checkpoint; with several processes rank 0 writes while all wait."""
        state = self.state()
        if self.processes.leads:
            self.log.sync()
            self.checkpoints.save(self.step, state)
        self.processes.wait()
        self._last_save = time.monotonic()
        self._decided = False
        self.pace.skip()

    def _restore(self) -> None:
        if self.processes.leads:
            self.checkpoints.clean()
        self.processes.wait()
        found = self.checkpoints.latest()
        if found is not None:
            with refusing(self.checkpoints.folder):
                self._resume(*found)
        self.processes.wait()  # all have read the rows
        if self.processes.leads:
            self.checkpoints.drop_after(self.step)
        self.log.restart(self.parts.handle.journal)

    def _resume(self, step: int, state: dict[str, Any]) -> None:
        self.step = self.resumed_from = step
        self._check_same_run(state)
        journal = self.log.recover(step, state.get("rows", {}))
        self.tally = load(self.parts, state, journal, self.processes)
        before = self._code_of(state)
        self.code = before if self.finished else provenance.joined(before, self.code)

    def _check_same_run(self, state: dict[str, Any]) -> None:
        if state["identity"] != self.config.identity():
            raise other_configuration(self.folder)
        saved = {**state, "code": self._code_of(state).rpartition("+")[2]}
        now = {"world": self.processes.world, "threads": torch.get_num_threads(), "torch": torch.__version__}
        provenance.warn_of_changes(saved, {**now, "kernels": kernels(), "code": self.code})

    def _code_of(self, state: dict[str, Any]) -> str:
        return state.get("code", self._code_before)

    def _claim_folder(self) -> None:
        """Write configuration and environment, but never over those of another run."""
        refuse_others(self.folder, self.config, self.checkpoints)
        self._code_before = provenance.code_of(self.files.environment)
        self.processes.wait()
        if self.processes.leads:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.files.config, to_toml(self.config).encode())
            write_atomically(self.files.environment, json.dumps(describe(), indent=1).encode())
        self.processes.wait()

    def _notify(self, event: str, *arguments: Any) -> None:
        if self.view is not None and self.processes.leads:
            getattr(self.view, event)(self, *arguments)
