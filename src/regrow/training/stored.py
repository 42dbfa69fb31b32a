"""Runs on disk: their configuration, newest weights, evaluation."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from regrow import config as configuration
from regrow import data
from regrow.config import Config
from regrow.errors import StateError
from regrow.training.checkpoint import Checkpoints
from regrow.training.evaluation import Scores, evaluate
from regrow.training.setup import build_model


def read_config(folder: Path) -> Config:
    """The configuration of a run."""
    path = folder / "config.toml"
    if not path.is_file():
        raise StateError(f"{folder} is not the folder of a run: it has no config.toml")
    return configuration.load(path)


def load_model(folder: Path) -> tuple[int, Config, nn.Module]:
    """Step, configuration and model of a run's newest whole checkpoint."""
    config = read_config(folder)
    found = Checkpoints(folder / "checkpoints").latest()
    if found is None:
        raise StateError(
            f"{folder} has no checkpoint yet: train it first, regrow train {folder / 'config.toml'} --out {folder}"
        )
    dataset = data.load(
        config.data.name, "test" if config.data.test_split == "test" else "val", root=config.data.root or None
    )
    network = build_model(config, dataset)
    network.load_state_dict(found[1]["model"])
    return found[0], config, network


def evaluate_run(folder: Path, split: str | None = None) -> tuple[int, Scores]:
    """Accuracy of a run's newest checkpoint."""
    step, config, network = load_model(folder)
    settings = config.data
    dataset = data.load(
        settings.name,
        split or settings.test_split,
        root=settings.root or None,
        augment=False,
        image_size=settings.image_size,
    )
    return step, evaluate(network, dataset, settings.eval_batch)
