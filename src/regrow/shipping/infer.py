"""``regrow infer``: a file's answers to a data set, and how long they take."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regrow import data
from regrow.data import Dataset
from regrow.errors import ConfigurationError
from regrow.shipping import file
from regrow.shipping.loading import load
from regrow.training.processes import use_threads

PERCENTILES = (50, 90, 99)


@torch.no_grad()
def infer(options: argparse.Namespace) -> str:
    """Two lines: accuracy, then times of calls."""
    if options.batch < 1:
        raise ConfigurationError(f"--batch must be at least 1, got {options.batch}")
    if options.model.is_dir():
        raise ConfigurationError(
            f"{options.model} is a folder: write the run's network to a file first, regrow export {options.model} --to "
            f"{options.model.name}.safetensors"
        )
    if not options.model.is_file():
        raise ConfigurationError(
            f"{options.model}: no such file; write one with regrow export RUN --to {options.model.stem}.safetensors"
        )
    use_threads(options.threads or 0)
    about = file.read(options.model).about
    dataset = _dataset(about.get("data"), options)
    _check_shape(about.get("input_shape"), dataset)
    start = time.perf_counter()
    network = load(options.model, allow=options.allow)
    seconds = time.perf_counter() - start
    right, times = _answers(network, dataset, options.batch)
    total, milliseconds = sum(times), np.array(times) * 1e3
    marks = "  ".join(f"p{p} {np.percentile(milliseconds, p):.3f}" for p in PERCENTILES)
    return (
        f"{Path(options.model).name} on {dataset.name} {dataset.split}: accuracy {right / len(dataset):.2%}  n = {len(dataset)}\n"
        f"batch {options.batch}: {marks} ms over {len(times)} calls, {len(dataset) / total:,.0f} samples/s, "
        f"{torch.get_num_threads()} threads; loaded in {seconds:.2f} s"
    )


def _dataset(recorded: Any, options: argparse.Namespace) -> Dataset:
    """The data as the network was trained on them: the recorded normalisation and size go with any data of its kind."""
    known: Mapping[str, Any] = recorded if isinstance(recorded, dict) else {}
    name = options.data or known.get("name")
    if not isinstance(name, str):
        raise ConfigurationError("the file does not say what it was trained on: name a data set, --data NAME")
    mean, std, size = (known.get(key) for key in ("mean", "std", "image_size"))
    own = data.Normalisation(tuple(mean), tuple(std)) if mean and std else None
    return data.load(
        name, options.split, augment=False, normalisation=own, image_size=size if type(size) is int else 224
    )


def _check_shape(expected: Any, dataset: Dataset) -> None:
    """Refuse data of another shape than the network was trained on, where the file says it."""
    if isinstance(expected, list) and tuple(expected) != dataset.shape:
        known, given = ("x".join(map(str, shape)) for shape in (expected, dataset.shape))
        raise ConfigurationError(
            f"the file's network takes {known}, {dataset.name} has {given}: name other data, --data NAME"
        )


def _answers(network: nn.Module, dataset: Dataset, batch: int) -> tuple[int, list[float]]:
    """How many answers are right, and the seconds of each call; the first call, which prepares, is repeated."""
    right, times, warm = 0, [], False
    for images, labels in dataset.batches(batch_size=batch):
        if not warm:
            network(images)
            warm = True
        start = time.perf_counter()
        logits = network(images)
        times.append(time.perf_counter() - start)
        right += int((logits.argmax(1) == labels).sum())
    return right, times
