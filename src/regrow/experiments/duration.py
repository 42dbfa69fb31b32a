"""How long runs take, roughly, before they are started: in seconds on this machine, or relative to each other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch

from regrow import models
from regrow.config import Config
from regrow.environment import cores
from regrow.models.cost import cost

if TYPE_CHECKING:
    from regrow.experiments.experiment import Cell

SAMPLES = {"mnist": 54_000, "mnist-sample": 3_600, "cifar10": 45_000, "imagenet": 1_281_167}
_OTHER_SAMPLES = 50_000
_VALIDATION = 10 / 9
_STEP_SECONDS = 0.001
_TYPICAL_RATE = 2e10


def measured_rate() -> float:
    """Multiply-accumulates per second of dense convolutions on all cores, forward only, from a short measurement on one.

    One thread, as each run of a sweep has, and the best of many: other programs that run now say little about the hours to come.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    x, w = (torch.randn(size).to(memory_format=torch.channels_last) for size in ((32, 64, 32, 32), (64, 64, 3, 3)))
    fastest, ends = float("inf"), time.perf_counter() + 0.5
    try:
        while time.perf_counter() < ends:
            began = time.perf_counter()
            torch.conv2d(x, w, padding=1)
            fastest = min(fastest, time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    return cores() * 32 * 64 * 64 * 9 * 32 * 32 / fastest


def estimate(cells: Sequence[Cell], seeds: int, rate: float) -> float:
    """Seconds for all runs on all cores."""
    return seeds * sum(seconds(cell.config, rate) for cell in cells)


def seconds(config: Config, rate: float = _TYPICAL_RATE) -> float:
    """Seconds of one run: the work of three forward passes per step, but never below 1 ms a step."""
    samples = _samples(config)
    return max(3 * _macs(config.model) * samples / rate, _STEP_SECONDS * samples / config.data.batch)


@cache
def _macs(name: str) -> int:
    """Multiply-accumulates of one forward pass, from shapes alone; none for a model whose shapes are not at hand."""
    if name not in {info.name for info in models.list_models()}:
        return 0
    try:
        with torch.device("meta"):
            return cost(models.create(name), models.info(name).input_shape).macs
    except (TypeError, ValueError, RuntimeError):  # needs options, or looks at values: no reason not to train it
        return 0


def _samples(config: Config) -> float:
    """Training images of a whole run; a tenth of MNIST and CIFAR-10 is held out unless it is trained on."""
    epoch = SAMPLES.get(config.data.name, _OTHER_SAMPLES) * (
        _VALIDATION if config.data.train_split == "train+val" else 1
    )
    return min(epoch * config.epochs, config.max_steps * config.data.batch or float("inf"))
