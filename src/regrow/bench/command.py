"""``regrow bench``: measure, show, store."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from regrow import models, native
from regrow.allocator import keep_buffers
from regrow.bench import arms, infer, layers, machine, masks, show, train
from regrow.bench.arms import batch_of
from regrow.bench.memory import peak_mb
from regrow.environment import describe
from regrow.errors import ConfigurationError
from regrow.files import write_atomically
from regrow.training.processes import use_threads

MEMORY = "resident high-water mark (VmHWM) of a process of its own, above that of an idle one"


def bench(options: argparse.Namespace, densities: Sequence[float]) -> None:
    """Measure what the options ask for; the allocator is tuned alike for all arms."""
    if not native.available():
        native.library()
    if options.repeats < 1:
        raise ConfigurationError(f"--repeats must be at least 1, got {options.repeats}")
    _refuse_unknown_models(options)
    use_threads(options.threads or 0)
    tuned = keep_buffers()
    about, peak = describe(), machine.fma_peak()
    console = Console()
    console.print(
        f"{about['processor']}, {about['threads']} threads, torch {about['torch']}, FMA peak {peak:.0f} GFLOP/s (registers only, best "
        f"of several), medians of {options.repeats}, interleaved",
        highlight=False,
    )
    about |= {"buffers_kept": tuned, "memory": MEMORY if options.memory else "not measured"}
    content: dict[str, Any] = {"machine": about, "fma_peak_gflops": peak, "repeats": options.repeats, "rows": []}
    _store(options.json, content)  # a place that cannot be written to is an error before hours of measuring
    records = content["rows"]
    if options.what in ("infer", "auto"):
        (_infer if options.what == "infer" else _auto)(options, densities, content, console)
        return
    for record in (_layers if options.what == "layers" else _train)(options, densities):
        records.append({**record, "peak_share": record["useful_gflops"] / peak})
        _store(options.json, content)
        console.print(show.line(record), highlight=False, soft_wrap=True)
    for reason in dict.fromkeys(r["compile_skipped"] for r in records if r["compile_skipped"]):
        console.print(f"dense compiled is missing: {reason}", highlight=False)
    for table in show.tables(records, peak):
        console.print(table)


def _refuse_unknown_models(options: argparse.Namespace) -> None:
    for name in [] if options.what == "layers" else options.model.split(","):
        if options.what != "infer" or name != infer.MLP:
            models.info(name)


def bench_memory(
    chosen: Sequence[tuple[str, float | None]],
    batch: int | None,
    threads: int,
    storages: Sequence[str],
    path: str | None,
) -> None:
    """Count and measure the bytes of a training step, arm by arm, in processes of their own."""
    from regrow.bench import footprint

    use_threads(threads)
    console = Console()
    about = {**describe(), "memory": f"{MEMORY}; median of {footprint.PROCESSES}"}
    content: dict[str, Any] = {"machine": about, "rows": []}
    _store(path, content)
    for row in footprint.rows(chosen, batch, torch.get_num_threads(), storages):
        content["rows"].append(row)
        _store(path, content)
        console.print(footprint.line(row), highlight=False, soft_wrap=True)


def bench_wide(repeats: int, threads: int, path: str | None) -> None:
    """A layer that is better not dense; the allocator is tuned alike for both arms."""
    from regrow.bench import wide

    wide.refuse_small_machine()
    use_threads(threads)
    about = {**describe(), "buffers_kept": keep_buffers()}
    content: dict[str, Any] = {"machine": about, "repeats": repeats, "rows": []}
    _store(path, content)
    found = wide.measure(repeats=repeats)
    content["rows"].append(found.record())
    _store(path, content)
    Console().print(found.line(), highlight=False, soft_wrap=True)


def bench_machine(threads: int, path: str | None) -> None:
    """What multiply-adds reach, by where one operand lies."""
    use_threads(threads)
    found = machine.ceilings()
    _store(path, {"machine": describe(), "gflops": found})
    table = Table("one operand from", "GFLOP/s")
    for place, peak in found.items():
        table.add_row(place, f"{peak:.0f}")
    Console().print(table)


def _infer(options: argparse.Namespace, densities: Sequence[float], content: dict[str, Any], console: Console) -> None:
    for density in densities:
        for batch in options.batch:
            row = infer.measure(options.model, density, batch, options.repeats, options.compile)
            content["rows"].append(row)
            _store(options.json, content)
            console.print(infer.line(row), highlight=False, soft_wrap=True)
    for reason in dict.fromkeys(row["compile_skipped"] for row in content["rows"] if row["compile_skipped"]):
        console.print(f"torch compiled is missing: {reason}", highlight=False)


def _auto(options: argparse.Namespace, densities: Sequence[float], content: dict[str, Any], console: Console) -> None:
    from regrow.bench import choice

    for name in options.model.split(","):
        base, batch = _model(name, options.batch)
        for density in densities:
            drawn = masks.uniform(base, density)
            for chosen in (drawn, arms.after_updates(base, *batch, drawn)) if options.updates else (drawn,):
                row = choice.measure(name, base, batch, chosen, options.repeats).record()
                content["rows"].append(row)
                _store(options.json, content)
                console.print(choice.line(row), highlight=False, soft_wrap=True)


def _model(name: str, batch: int | None) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A model with a batch that it can train on."""
    base, (x, y) = models.create(name, seed=0), batch_of(name, batch)
    if len(x) == 1:
        try:
            copy.deepcopy(base)(x)
        except ValueError as error:
            raise ConfigurationError(f"{name} cannot train on a batch of 1 ({error}): choose --batch 2") from error
    return base, (x, y)


def _store(path: str | None, content: dict[str, Any]) -> None:
    if not path:
        return
    try:
        write_atomically(Path(path), (json.dumps(content, indent=1) + "\n").encode())
    except OSError as error:
        raise ConfigurationError(f"--json {path} cannot be written ({error.strerror}): choose another file") from error


def _layers(options: argparse.Namespace, densities: Sequence[float]) -> Iterator[dict[str, Any]]:
    specs = list(dict.fromkeys(replace(spec, batch=options.batch or spec.batch) for spec in layers.LAYERS))
    chosen = [spec for spec in specs if options.only in spec.name]
    if not chosen:
        names = ", ".join(spec.name for spec in specs)
        raise ConfigurationError(f"no layer's name contains {options.only!r}: {names}")
    storages = options.storage if len(options.storage) > 1 else ()
    for spec in chosen:
        for density in densities:
            wanted = {"compile": options.compile, "memory": options.memory, "storages": storages}
            row = layers.measure(spec, density, options.repeats, **wanted)
            yield row.record()


def _train(options: argparse.Namespace, densities: Sequence[float]) -> Iterator[dict[str, Any]]:
    base, batch = _model(options.model, options.batch)
    sources = (
        (masks.of_run(path, base) for path in options.masks)
        if options.masks
        else (masks.uniform(base, density) for density in densities)
    )
    paths = options.masks or [None] * len(densities)
    window = _window(options.windows) if options.windows else None
    for chosen, path in zip(sources, paths, strict=True):
        for storage in options.storage:
            wanted = {"window": window, "compile": options.compile, "auto": options.auto, "storage": storage}
            found = train.measure(options.model, base, batch, chosen, options.repeats, **wanted)
            yield (_with_memory(options, found, path) if options.memory else found).record()


def _with_memory(options: argparse.Namespace, found: train.TrainResult, path: Path | None) -> train.TrainResult:
    arm = {
        "model": options.model,
        "batch": found.batch,
        "density": found.density,
        "masks": None if path is None else str(path.resolve()),
        "threads": torch.get_num_threads(),
    }
    # A compiled model's process would also hold the compiler: its eager twin stands for it.
    fastest = "dense channels_last" if found.dense_setting == "dense compiled" else found.dense_setting
    dense, masked = (peak_mb({**arm, "name": name}) for name in (fastest, "masked"))
    sparse = peak_mb({**arm, "name": "sparse", "storage": found.storage})
    return replace(found, dense_mb=dense, masked_mb=masked, sparse_mb=sparse)


def _window(text: str) -> train.WindowSteps:
    steps, slash, of = text.partition("/")
    if not slash or not steps.isdecimal() or not of.isdecimal() or not 0 <= int(steps) <= int(of) or int(of) == 0:
        raise ConfigurationError(
            f"--windows takes steps with an open window of all steps, such as 22/352, got {text!r}"
        )
    return train.WindowSteps(int(steps), int(of))
