"""How long an experiment takes on this machine, roughly, before it is started."""

from __future__ import annotations

import time
from collections.abc import Sequence

from regrow.config import Config
from regrow.environment import cores
from regrow.experiments.experiment import Cell

SAMPLES = {"mnist": 54_000, "mnist-sample": 3_600, "cifar10": 45_000, "imagenet": 1_281_167}
_VALIDATION = 10 / 9


def measured_rate() -> float:
    """Multiply-accumulates per second of dense convolutions on all cores, forward only, from a short measurement on one.

    One thread, as each run of a sweep has, and the best of many: other programs that run now say little about the hours to come.
    """
    import torch

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
    """Seconds for all runs on all cores: the work of three forward passes per step, but never below 1 ms a step."""
    macs = {name: _macs(name) for name in {cell.config.model for cell in cells}}
    total = 0.0
    for cell in cells:
        samples = _samples(cell.config)
        total += seeds * max(3 * macs[cell.config.model] * samples / rate, 0.001 * samples / cell.config.data.batch)
    return total


def _macs(name: str) -> int:
    """Multiply-accumulates of one forward pass, from shapes alone."""
    import torch

    from regrow import models
    from regrow.models.cost import cost

    with torch.device("meta"):
        return cost(models.create(name), models.info(name).input_shape).macs


def _samples(config: Config) -> float:
    """Training images of a whole run; a tenth of MNIST and CIFAR-10 is held out unless it is trained on."""
    epoch = SAMPLES[config.data.name] * (_VALIDATION if config.data.train_split == "train+val" else 1)
    return min(epoch * config.epochs, config.max_steps * config.data.batch or float("inf"))
