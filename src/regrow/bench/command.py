"""``regrow bench``: measure, show, store."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from regrow import models
from regrow.allocator import keep_buffers
from regrow.bench import layers, machine, train
from regrow.environment import describe


def bench(options: argparse.Namespace, densities: Sequence[float]) -> None:
    """Measure what the options ask for; the allocator is tuned alike for dense and sparse."""
    if options.threads:
        torch.set_num_threads(options.threads)
    keep_buffers()
    about, peak = describe(), machine.peak_gflops()
    console = Console()
    console.print(
        f"{about['processor']}, {about['threads']} threads, torch {about['torch']}, peak {peak:.0f} GFLOP/s (matmul)"
    )
    measured = _layers if options.what == "layers" else _train
    records = []
    for record in measured(options, densities):
        records.append(record)
        console.print(_line(record), highlight=False)
    console.print(_table(records, peak))
    if options.json:
        content = {"machine": about, "peak_gflops": peak, "rounds": options.rounds, "rows": records}
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")


def _layers(options: argparse.Namespace, densities: Sequence[float]) -> Iterator[dict[str, Any]]:
    chosen = [spec for spec in layers.LAYERS if options.only in spec.name]
    for row in layers.measure_all(list(densities), chosen, options.rounds, "wall"):
        yield row.record()


def _train(options: argparse.Namespace, densities: Sequence[float]) -> Iterator[dict[str, Any]]:
    info = models.info(options.model)
    x = torch.randn(options.batch, *info.input_shape)

    def factory() -> torch.nn.Module:
        return models.create(options.model, seed=0)

    for density in densities:
        yield train.measure(options.model, factory, x, info.num_classes, density, options.rounds).record()


def _line(record: dict[str, Any]) -> str:
    name = record.get("layer", record.get("model"))
    times = f"dense {record['dense_ms']:.1f} ms  sparse {record['sparse_ms']:.1f} ms"
    return f"{name}  {record['density']:.0%}  {times}  {record['ratio']:.2f}x"


def _table(records: Sequence[dict[str, Any]], peak: float) -> Table:
    table = Table()
    for name in ("what", "density", "dense ms", "sparse ms", "ratio", "useful GFLOP/s", "with optimizer"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for r in records:
        useful = f"{r['useful_gflops']:.0f} ({r['useful_gflops'] / peak:.0%})" if "useful_gflops" in r else ""
        step = f"{r['step_ratio']:.2f}x" if "step_ratio" in r else ""
        cells = (f"{r['dense_ms']:.2f}", f"{r['sparse_ms']:.2f}", f"{r['ratio']:.2f}x", useful, step)
        table.add_row(str(r.get("layer", r.get("model"))), f"{r['density']:.0%}", *cells)
    return table
