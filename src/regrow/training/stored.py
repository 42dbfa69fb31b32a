"""Runs on disk: their configuration, newest weights and masks, evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from regrow import config as configuration
from regrow.config import Config
from regrow.data import Dataset
from regrow.environment import cores
from regrow.errors import CheckpointWarning, StateError
from regrow.execution import attach, unsupported, use_chwn
from regrow.marks import count_of
from regrow.shipping.freeze import DENSEST
from regrow.training.checkpoint import Checkpoints, Saved, is_one, read, step_of
from regrow.training.evaluation import Scores, evaluate
from regrow.training.folder import RunFolder
from regrow.training.processes import use_threads
from regrow.training.resume import refusing
from regrow.training.setup import build_model, load_split


@dataclass(frozen=True)
class StoredModel:
    """The network of a run's newest whole checkpoint; ``masks`` by parameter name.

    ``unfinished`` names parameters with weights outside their masks: a method that trains more than present weights was not ended.
    """

    step: int
    config: Config
    network: nn.Module
    masks: dict[str, Tensor]
    unfinished: frozenset[str]


@dataclass(frozen=True)
class Evaluation:
    """What :func:`evaluate_run` found; ``sparse`` of ``layers`` sparse layers were computed by native kernels."""

    step: int
    scores: Scores
    sparse: int
    layers: int


def read_config(folder: Path) -> Config:
    """The configuration of a run."""
    return configuration.load_stored(RunFolder(folder).required().config)


def newest(folder: Path, config: Config) -> Saved | None:
    """A run's newest whole checkpoint; a warning where it is not one of this configuration."""
    files = RunFolder(folder)
    found = Checkpoints(files.checkpoints).latest()
    if found is not None and found.state.get("identity") != config.identity():
        warnings.warn(
            f"{files.config} is not that of the checkpoints beside it: it was changed or damaged, and so may be what follows. "
            "Repeating the run's regrow train writes it anew",
            CheckpointWarning,
            stacklevel=3,
        )
    return found


def checkpoint_in(path: Path) -> Saved:
    """The newest checkpoint of a run's folder, or the one that is named itself."""
    if is_one(path):
        return Saved(step_of(path), read(path))
    found = Checkpoints(RunFolder(path).checkpoints).latest()
    if found is None:
        raise StateError(f"{path} has no checkpoint: name the folder of a run, or of one of its checkpoints")
    return found


def load_model(folder: Path, dataset: Dataset | None = None) -> StoredModel:
    """The model and masks of a run's newest whole checkpoint.

    Args:
        folder: of the run.
        dataset: any split of the run's data, whose shape and classes the model fits; the test split is loaded by default.
    """
    files, config = RunFolder(folder), read_config(folder)
    found = newest(folder, config)
    if found is None:
        raise StateError(f"{folder} has no checkpoint yet: train it first, regrow train {files.config} --out {folder}")
    network = build_model(config, dataset or load_split(config, config.data.test_split))
    with refusing(files.checkpoints):
        network.load_state_dict(found.weights)
        return StoredModel(found.step, config, network, found.masks, _outside(network, found.masks))


def _outside(network: nn.Module, masks: Mapping[str, Tensor]) -> frozenset[str]:
    parameters = dict(network.named_parameters(remove_duplicate=False))
    return frozenset(name for name, mask in masks.items() if bool(parameters[name][~mask].any()))


def compute_sparse(stored: StoredModel) -> int:
    """Let a network compute its present weights only, where kernels exist and most weights are missing; returns how many layers do."""
    modules = dict(stored.network.named_modules())
    count = 0
    for name, mask in stored.masks.items():
        module = modules.get(name.removesuffix(".weight"))
        if module is None or name in stored.unfinished or unsupported(module) is not None:
            continue
        if count_of(mask) <= DENSEST * mask.numel():
            attach(module, mask).take_weight()
            count += 1
    if count:
        use_chwn(stored.network)
    return count


def evaluate_run(
    folder: Path, split: str | None = None, execution: Literal["sparse", "masked"] = "sparse"
) -> Evaluation:
    """Accuracy of a run's newest checkpoint, on sparse kernels where there are any, unless ``masked`` is asked for."""
    config = read_config(folder)
    # A run of a larger machine can be evaluated on this one.
    use_threads(min(config.threads, cores()))
    dataset = load_split(config, split or config.data.test_split, augment=False)
    stored = load_model(folder, dataset)
    sparse = compute_sparse(stored) if execution == "sparse" else 0
    scores = evaluate(stored.network, dataset, config.data.eval_batch)
    return Evaluation(stored.step, scores, sparse, len(stored.masks))
