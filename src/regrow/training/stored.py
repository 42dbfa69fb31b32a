"""Runs on disk: their configuration, newest weights, evaluation."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from torch import nn

from regrow import config as configuration
from regrow.config import Config
from regrow.data import Dataset
from regrow.environment import cores
from regrow.errors import CheckpointWarning, StateError
from regrow.training.checkpoint import Checkpoints
from regrow.training.evaluation import Scores, evaluate
from regrow.training.processes import use_threads
from regrow.training.resume import refusing
from regrow.training.setup import build_model, load_split


def read_config(folder: Path) -> Config:
    """The configuration of a run."""
    path = folder / "config.toml"
    if not path.is_file():
        raise StateError(f"{folder} is not the folder of a run: it has no config.toml")
    return configuration.load(path)


def newest(folder: Path, config: Config) -> tuple[int, dict[str, Any]] | None:
    """Step and state of a run's newest whole checkpoint; a warning where it is not one of this configuration."""
    found = Checkpoints(folder / "checkpoints").latest()
    if found is not None and found[1].get("identity") != config.identity():
        warnings.warn(
            f"{folder / 'config.toml'} is not that of the checkpoints beside it: it was changed or damaged, and so may be what follows. "
            "Repeating the run's regrow train writes it anew",
            CheckpointWarning,
            stacklevel=3,
        )
    return found


def load_model(folder: Path, dataset: Dataset | None = None) -> tuple[int, Config, nn.Module]:
    """Step, configuration and model of a run's newest whole checkpoint.

    Args:
        folder: of the run.
        dataset: any split of the run's data, whose shape and classes the model fits; the test split is loaded by default.
    """
    config = read_config(folder)
    found = newest(folder, config)
    if found is None:
        raise StateError(
            f"{folder} has no checkpoint yet: train it first, regrow train {folder / 'config.toml'} --out {folder}"
        )
    network = build_model(config, dataset or load_split(config, config.data.test_split))
    with refusing(folder / "checkpoints"):
        network.load_state_dict(found[1]["model"])
    return found[0], config, network


def evaluate_run(folder: Path, split: str | None = None) -> tuple[int, Scores]:
    """Accuracy of a run's newest checkpoint."""
    config = read_config(folder)
    # A run of a larger machine can be evaluated on this one.
    use_threads(min(config.threads, cores()))
    dataset = load_split(config, split or config.data.test_split, augment=False)
    step, _, network = load_model(folder, dataset)
    return step, evaluate(network, dataset, config.data.eval_batch)
