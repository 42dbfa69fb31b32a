"""What the table compares: error, weights, time of a step, memory, size of the file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regrow import models
from regrow.bench import masks
from regrow.bench.arms import SparseArm, batch_of, single_arm
from regrow.bench.train import TrainResult, WindowSteps, measure
from regrow.config import Config
from regrow.demo.pairs import Pair
from regrow.memory import account
from regrow.momentum import window_length
from regrow.shipping import file as shipped
from regrow.training.folder import RunFolder
from regrow.training.stored import checkpoint_in

_ROUNDS = 15


@dataclass(frozen=True)
class Row:
    """One line of the table; ``compact_bytes`` is the memory of the same training in compact storage."""

    network: str
    arm: str
    error: float
    weights: int
    step_ms: float
    memory_bytes: int
    file_bytes: int
    compact_bytes: int | None = None


def rows(pair: Pair, folders: dict[str, Path], results: dict[str, dict[str, Any]]) -> list[Row]:
    """Both lines of a network whose runs are finished; writes the file to ship into each run's folder."""
    times = _times(pair.sparse, folders["sparse"])
    step_ms = {"dense": times.dense_step_ms, "sparse": times.epoch_ms or times.native_step_ms}
    execution = pair.sparse.sparse.execution
    memory = {"dense": times.dense_setting, "sparse": execution}
    on_kernels = execution == "sparse"
    return [
        Row(
            pair.title,
            arm,
            results[arm]["test_error"],
            results[arm]["nonzeros"],
            step_ms[arm],
            _memory(config, memory[arm], folders["sparse"]),
            _ship(folders[arm]),
            _memory(config, execution, folders["sparse"], "compact") if arm == "sparse" and on_kernels else None,
        )
        for arm, config in pair.arms.items()
    ]


def _times(config: Config, folder: Path) -> TrainResult:
    """A whole step with the masks that were trained, dense at its fastest, in turns; growth windows are counted in."""
    model = models.create(config.model, seed=config.seed)
    interval = config.sparse.update_every
    open_steps = window_length(config.optimizer.momentum, config.sparse.window_tolerance, interval)
    batch = batch_of(config.model, config.data.batch)
    chosen, window = masks.of_run(folder, model), WindowSteps(open_steps, interval)
    return measure(config.model, model, batch, chosen, _ROUNDS, window=window, compile=False)


def _memory(config: Config, name: str, masked_by: Path, storage: str = "dense") -> int:
    """Bytes of training, counted after a step outside growth windows."""
    where = {"masks": str(masked_by), "storage": storage}
    arm = single_arm({"model": config.model, "batch": config.data.batch, "name": name, **where})
    arm.step()
    network = arm.handle.network if isinstance(arm, SparseArm) else None
    return account(arm.model, arm.optimizer, network, arm.x).total


def _ship(folder: Path) -> int:
    found = checkpoint_in(folder)
    return shipped.write(RunFolder(folder).shipped, shipped.store(found.weights, found.masks))
