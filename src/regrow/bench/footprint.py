"""``regrow bench memory``: bytes of a training step, counted part by part and measured, for dense, masked, sparse and compact."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from regrow import models
from regrow.arguments import STORAGES
from regrow.bench import masks
from regrow.bench.arms import usual_batch
from regrow.bench.memory import measured
from regrow.errors import StateError
from regrow.memory import PARTS

MODELS: tuple[tuple[str, float | None], ...] = (("vgg16-d", 0.05), ("lenet300", 0.05), ("gpt-10m", None))
"""What is measured unless told otherwise; a GPT has 30% of its attention and 10% of its feed-forward weights."""
PROCESSES = 3
_TRAINED = ("weights", "gradients")
SUMS = {
    "positions": (*_TRAINED, "masks"),
    "lists": (*_TRAINED, "masks", "lists"),
    "optimizer_positions": (*_TRAINED, "optimizer", "masks"),
    "optimizer_lists": (*_TRAINED, "optimizer", "masks", "lists"),
}
"""Parts whose sum is compared with dense: weights and gradients with the indices that say where they are; with all lists of kernels; both
with the optimizer's state. History and evidence are apart."""
ARMS = {"dense": "dense channels_last", "masked": "masked", "sparse": "sparse"}


def rows(
    chosen: Sequence[tuple[str, float | None]], batch: int | None, threads: int, storages: Sequence[str] = ("dense",)
) -> Iterator[dict[str, Any]]:
    """One record per model and arm; ``counted`` is the sum of the parts, ``peak`` the resident high-water mark above an idle process, the
    median of a few."""
    for model, density in chosen:
        source = masks.spread(models.create(model, seed=0), density)
        arm = {"model": model, "density": density, "batch": batch or usual_batch(model), "threads": threads}
        dense: dict[str, Any] | None = None
        for name, more in _arms(storages):
            row = _row([_measured({**arm, **more, "account": True}) for _ in range(PROCESSES)])
            dense = dense or row
            ratios = {f"{part}_ratio": row[part] / dense[part] for part in ("peak", "state", "counted")}
            ratios |= {f"{name}_ratio": _sum(row, parts) / _sum(dense, parts) for name, parts in SUMS.items()}
            about = {"model": model, "density": source.density, "masks": source.source, "batch": arm["batch"]}
            yield {**about, "arm": name, **row, **ratios}


def _arms(storages: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    yield from ((name, {"name": arm}) for name, arm in ARMS.items())
    yield from ((storage, {"name": "sparse", "storage": storage}) for storage in storages if storage != STORAGES[0])


def _sum(row: dict[str, Any], parts: Sequence[str]) -> int:
    return sum(row[part] for part in parts)


def _measured(arm: dict[str, Any]) -> dict[str, Any]:
    found = measured(arm)
    if found is None:
        raise StateError("this system does not tell the memory of a process (/proc/self/status): use Linux")
    return found


def _row(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    parts = found[0]["parts"]
    bytes_of = {part: parts[part] for part in PARTS}
    counted = parts["total"] + parts["activations"]
    peaks = sorted(round(process["peak_mb"] * 2**20) for process in found)
    sums = {"state": parts["total"], "activations": parts["activations"], "counted": counted}
    return {**bytes_of, **sums, "peak": statistics.median_low(peaks), "peaks": peaks}


def line(row: dict[str, Any]) -> str:
    """One record for the terminal."""
    from regrow.memory import readable

    parts = ", ".join(f"{part} {readable(row[part])}" for part in (*PARTS, "activations"))
    shares = [f"{row[f'{name}_ratio']:.1%}" for name in SUMS]
    sizes = (f"{name} {readable(row[name])} ({row[f'{name}_ratio']:.2f} of dense)" for name in ("counted", "peak"))
    peaks = f"{readable(row['peaks'][0])} to {readable(row['peaks'][-1])}, n = {len(row['peaks'])}"
    return (
        f"{row['model']} {row['density']:.1%} {row['arm']}: {parts}; {', '.join(sizes)} ({peaks}); of dense "
        f"weights and gradients {shares[0]} with positions, {shares[1]} with lists; with optimizer state {shares[2]} and {shares[3]}"
    )
