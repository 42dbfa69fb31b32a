"""How long an experiment takes on this machine, roughly, before it is started."""

from __future__ import annotations

import time
from collections.abc import Sequence

from regrow.experiments.experiment import Cell

SAMPLES = {"mnist": 54_000, "mnist-sample": 3_600, "cifar10": 45_000, "imagenet": 1_281_167}


def measured_rate() -> float:
    """Multiply-accumulates per second of a dense convolution on all cores, forward only, from a short measurement."""
    import torch

    x, w = torch.randn(32, 64, 32, 32), torch.randn(64, 64, 3, 3)
    torch.conv2d(x, w, padding=1)
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < 0.3:
        torch.conv2d(x, w, padding=1)
        rounds += 1
    return rounds * 32 * 64 * 64 * 9 * 32 * 32 / (time.perf_counter() - began)


def estimate(cells: Sequence[Cell], seeds: int, rate: float) -> float:
    """Seconds for all runs on all cores: three forward passes' work per step, never below 1 ms of overhead per step and core pair."""
    from regrow import models
    from regrow.models.cost import cost

    macs = {
        name: cost(models.create(name), models.info(name).input_shape).macs for name in {cell.model for cell in cells}
    }
    total = 0.0
    for cell in cells:
        samples = SAMPLES[cell.config.data.name] * cell.config.epochs
        steps = samples / cell.config.data.batch
        total += seeds * max(3 * macs[cell.model] * samples / rate, 0.001 * steps)
    return total
