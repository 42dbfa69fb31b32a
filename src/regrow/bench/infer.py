"""Inference: a frozen network against torch, interleaved in one run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regrow import models
from regrow.bench.compiled import compiled
from regrow.bench.masks import uniform
from regrow.bench.timing import samples
from regrow.shipping.freeze import Frozen, freeze

Candidates = dict[str, Callable[[], object]]
OURS, MLP = "regrow", "mlp"
_FEW, _MORE_ROUNDS = 8, 20


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A model of the registry, or `mlp` (784-4096-4096-10), and the shape of one sample."""
    if name == MLP:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            sizes = (784, 4096, 4096, 10)
            layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers[:-1]).eval(), (784,)
    return models.create(name, seed=0).eval(), models.info(name).input_shape


def present(model: nn.Module, density: float) -> dict[str, torch.Tensor]:
    """Uniform random masks by the name of their parameter."""
    return {f"{layer}.weight": mask for layer, mask in uniform(model, density).masks.items()}


def sparse_network(name: str, density: float) -> tuple[nn.Module, Frozen, tuple[int, ...]]:
    """A model with uniform random masks applied, the same frozen, and the shape of one sample."""
    model, shape = build(name)
    masks = present(model, density)
    with torch.no_grad():
        for parameter, mask in masks.items():
            model.get_parameter(parameter).mul_(mask)
    return model, freeze(model, masks, torch.zeros(1, *shape)), shape


@torch.no_grad()
def measure(
    name: str,
    density: float,
    batch: int,
    rounds: int,
    compile: bool = True,
    more: Callable[..., Candidates] | None = None,
) -> dict[str, Any]:
    """One row: median and 99th percentile of each candidate in milliseconds, and the ratio of the fastest other to ours.

    Every measured call follows one like it. ``more`` adds candidates, given the frozen network and the batch: they return their seconds.
    """
    model, frozen, shape = sparse_network(name, density)
    x = torch.randn(batch, *shape)
    candidates: Candidates = {OURS: lambda: frozen(x), "torch": lambda: model(x)}
    candidates |= _channels_last(model, x) if x.dim() == 4 else {}
    compact = frozen.dense()
    candidates["torch compact"] = lambda: compact(x)
    skipped = ""
    if compile:
        fast, skipped = compiled(compact, lambda candidate: candidate(x))
        candidates |= {} if fast is None else {"torch compiled": lambda: fast(x)}
    candidates = {arm: settled(call) for arm, call in candidates.items()}
    candidates |= {} if more is None else more(frozen, x)
    taken = samples(candidates, rounds * (_MORE_ROUNDS if batch <= _FEW else 1))
    median = {arm: float(np.median(times)) * 1e3 for arm, times in taken.items()}
    tail = {arm: float(np.percentile(times, 99)) * 1e3 for arm, times in taken.items()}
    best = min((arm for arm in median if arm != OURS), key=lambda arm: median[arm])
    row = {
        "model": name,
        "density": density,
        "batch": batch,
        "calls": len(taken[OURS]),
        "p50_ms": median,
        "p99_ms": tail,
    }
    return row | {"best_other": best, "ratio": median[best] / median[OURS], "compile_skipped": skipped}


def settled(call: Callable[[], object]) -> Callable[[], float]:
    """Seconds of a call behind one like it: nobody is measured with caches that another filled."""

    def seconds() -> float:
        call()
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    return seconds


def _channels_last(model: nn.Module, x: Tensor) -> Candidates:
    import copy

    twin = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    given = x.contiguous(memory_format=torch.channels_last)
    return {"torch channels_last": lambda: twin(given)}


def line(row: dict[str, Any]) -> str:
    """One row in words: medians, with 99th percentiles in brackets."""
    arms = "  ".join(f"{arm} {ms:.2f} ({row['p99_ms'][arm]:.2f})" for arm, ms in row["p50_ms"].items())
    what = f"{row['model']}  {100 * row['density']:.3g}%  batch {row['batch']}"
    return f"{what}:  {arms} ms  {row['ratio']:.2f}x {row['best_other']}"
