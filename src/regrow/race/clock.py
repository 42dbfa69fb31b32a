"""How long steps take on a quiet machine: every entry at the masks that its run kept, in alternation, summed up over its schedule.

t(step) = seconds of a step at the masks kept last before it: plain, or with gradients of missing weights collected
seconds = sum over steps of t(step) + updates * t(update)

Runs that share their machine with others have seconds of their own in their rows; those of this clock are what is compared.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regrow.config import Config
from regrow.environment import code, machine
from regrow.race.entries import DENSE
from regrow.race.seconds import Reading
from regrow.race.slices import Runner
from regrow.race.stored import read_lines, write_lines
from regrow.race.topologies import kept
from regrow.training.run import Run

_FIRST, _STEPS = 3, 5
_MOMENTUM = 0.9


def read_clock(runners: Sequence[Runner], rounds: int, path: Path) -> list[Reading]:
    """Time all entries ``rounds`` times, who begins rotates; readings are written as they come, and those of before stay."""
    readings, here = read_lines(path), {"machine": machine(), "code": code()}
    for turn in range(rounds):
        for step, points in _points(runners).items():
            shift = turn % len(points)
            for runner, masks in points[shift:] + points[:shift]:
                label, seed = runner.entry.label, runner.entry.config.seed
                who = {"setting": label, "seed": seed, "step": step}
                readings.append({**who, **time_steps(runner.entry.config, masks), **here})
                write_lines(path, readings)
                taken = 1e3 * readings[-1]["plain"]
                print(f"{label} seed {seed}: masks of step {step:,}, {taken:.1f} ms a step", flush=True)
    return readings


def _points(runners: Sequence[Runner]) -> dict[int, list[tuple[Runner, dict[str, Tensor]]]]:
    """Step -> who has masks of it; dense entries take part at all of them."""
    found = {runner: kept(runner.folder, runner.run.parts.handle) for runner in runners}
    steps = sorted({step for masks in found.values() for step in masks} or {0})
    return {
        step: [
            (r, found[r].get(step, {})) for r in runners if step in found[r] or r.entry.config.sparse.method == DENSE
        ]
        for step in steps
    }


class _Watch:
    """Sorts the seconds of a run's steps by kind, and ends it with its first topology update after the warm-up."""

    def __init__(self, last: int, masks: Mapping[str, Tensor]) -> None:
        self.last, self.masks = last, masks
        self.seconds: dict[str, list[float]] = {"plain": [], "collecting": [], "update": []}
        self._updates = 0

    def started(self, run: Run) -> None:
        self._mark(run)

    def stepped(self, run: Run) -> None:
        taken = time.perf_counter() - self._last
        updated = run.parts.handle.updates != self._updates
        kind = "update" if updated else "collecting" if self._open else "plain"
        if run.step > _FIRST:
            self.seconds[kind].append(taken)
        elif updated and self.masks:  # RigL and its kin also update in place of the very first step
            _set(run, self.masks)
        run.stop_requested = (run.step > _FIRST and updated) or run.step > self.last
        self._mark(run)

    def _mark(self, run: Run) -> None:
        handle = run.parts.handle
        self._open, self._updates, self._last = handle.needs_missing_gradients, handle.updates, time.perf_counter()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def time_steps(config: Config, masks: Mapping[str, Tensor]) -> dict[str, float]:
    """Median seconds of a plain step and of one that collects gradients of missing weights, and what an update adds to a step."""
    last = _FIRST + 2 * _STEPS + 1
    # Half of the steps before the update lie in its window: K = _STEPS + 1 of them.
    tolerance = (config.optimizer.momentum or _MOMENTUM) ** (_STEPS + 0.5)
    sparse = replace(config.sparse, update_every=last, window_tolerance=tolerance, window_stride=1)
    watch = _Watch(last, masks)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(replace(config, sparse=sparse, max_steps=0), Path(folder), view=watch)
        if masks:
            _set(run, masks)
        run.train()
    plain = statistics.median(watch.seconds["plain"])
    collecting = statistics.median(watch.seconds["collecting"]) if watch.seconds["collecting"] else plain
    update = statistics.median(watch.seconds["update"]) - collecting if watch.seconds["update"] else 0.0
    return {"plain": plain, "collecting": collecting, "update": max(0.0, update)}


@torch.no_grad()
def _set(run: Run, masks: Mapping[str, Tensor]) -> None:
    """The masks, with weights of the size that a new network has."""
    handle = run.parts.handle
    handle.network.set_masks(dict(masks))
    for sparse in handle.parameters:
        weight, spread = sparse.parameter, float(sparse.parameter[sparse.parameter != 0].std())
        weight.copy_(
            torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * spread * masks[sparse.name]
        )
