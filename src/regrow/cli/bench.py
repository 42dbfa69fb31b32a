"""Measure sparse execution against the fastest dense torch, interleaved in one run.

regrow bench layers --density 0.05,0.1,0.2,0.3
regrow bench train --model vgg16-d --density 0.05,0.1,0.2 --windows
regrow bench train --model vgg16-d --density 0.1,0.5,1 --auto    is execution="auto" ever slower than dense?
regrow bench train --model vgg16-d --masks runs/vgg16-d-...      real masks, with the bound from their MACs
regrow bench auto --model vgg16-d --density 0.05,0.3              its choice against every mix that differs in one chain
regrow bench infer --model vgg16-d --density 0.05,0.1 --batch 1,64    frozen networks: ours, torch eager and compiled
regrow bench memory --json memory.json                           bytes of a step, counted and measured: dense, masked, sparse
regrow bench wide --json wide.json                               768 inputs, 670,000 outputs, 4.2%: compact beside dense
regrow bench machine                                             multiply-adds from registers, caches, memory: what no layer can exceed
regrow bench plot layers.json train.json --out docs/speed-up.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

DENSITIES = "0.01,0.02,0.05,0.1,0.2,0.3,0.5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow bench``."""
    parser.add_argument(
        "what",
        choices=("layers", "train", "auto", "infer", "memory", "wide", "machine", "plot"),
        help="layers, training steps, what `auto` chooses, inference, memory, a layer too wide to be dense, the "
        "machine's own ceilings, or a picture",
    )
    parser.add_argument(
        "files", nargs="*", type=Path, default=[], metavar="FILE", help="`plot`: files written by --json"
    )
    parser.add_argument("--density", help=f"comma-separated, in (0, 1] (default {DENSITIES}; `memory`: 0.05)")
    parser.add_argument(
        "--model",
        help="`train`, `auto`, `infer`: the model (default vgg16-d; auto: several, comma-separated; infer: also mlp); "
        "`memory`: default vgg16-d, lenet300 and gpt-10m",
    )
    parser.add_argument(
        "--batch",
        help="`layers`, `train`, `auto`, `memory`: the batch (default 128; less for ResNet-50, LeNet-300-100 and GPTs); "
        "`infer`: comma-separated (default 1,64)",
    )
    parser.add_argument(
        "--storage",
        default="dense",
        help="`layers`, `train`, `memory`: how weights and optimizer state are stored, comma-separated (default dense)",
    )
    parser.add_argument(
        "--windows",
        nargs="?",
        const="22/352",
        metavar="K/N",
        help="`train`: also the average over N steps of which K have an open growth window (default 22/352, CIFAR-10)",
    )
    parser.add_argument(
        "--auto",
        action="store_true",
        help="`train`: also execution='auto', after it decided (never slower than dense?)",
    )
    parser.add_argument(
        "--masks",
        action="append",
        type=Path,
        default=[],
        metavar="RUN",
        help="`train`: masks of a run's newest checkpoint, or of one checkpoint; repeat for more",
    )
    parser.add_argument(
        "--updates", action="store_true", help="`auto`: also masks after two topology updates of a short run"
    )
    parser.add_argument("--only", default="", help="`layers`: those whose name contains this")
    parser.add_argument("--repeats", "--rounds", type=int, default=5, help="measurements of each candidate (default 5)")
    parser.add_argument("--threads", type=int, help="default: torch's choice")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="do not measure peak memory")
    parser.add_argument("--json", help="write one record per row to this file")
    parser.add_argument("--out", type=Path, default=Path("speed-up.png"), help="`plot`: the picture")


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the records; or draw."""
    if options.what == "plot":
        from regrow.bench.plot import draw

        print(draw(options.files, options.out))
        return 0
    from regrow.bench.command import bench

    if options.what == "memory":
        return _memory(options)
    if options.what == "wide":
        from regrow.bench.command import bench_wide

        bench_wide(options.repeats, options.threads or 0, options.json)
        return 0
    if options.what == "machine":
        from regrow.bench.command import bench_machine

        bench_machine(options.threads or 0, options.json)
        return 0
    options.model = options.model or "vgg16-d"
    options.density = options.density or DENSITIES
    if options.batch or options.what == "infer":  # else the default depends on the model
        options.batch = _batches(options.batch or "1,64", options.what)
    options.storage = _storages(options.storage)
    bench(options, _densities(options.density))
    return 0


def _memory(options: argparse.Namespace) -> int:
    from regrow.bench.command import bench_memory
    from regrow.bench.footprint import MODELS

    chosen = MODELS
    if options.model or options.density:
        names = [options.model] if options.model else [name for name, _ in MODELS]
        chosen = tuple((name, density) for name in names for density in _densities(options.density or "0.05"))
    batch = None if options.batch is None else _batches(options.batch, "memory")
    bench_memory(chosen, batch, options.threads or 0, _storages(options.storage), options.json)  # type: ignore[arg-type]
    return 0


def _storages(text: str) -> list[str]:
    from regrow.arguments import STORAGES
    from regrow.errors import unknown

    for storage in text.split(","):
        if storage not in STORAGES:
            raise unknown("--storage", storage, STORAGES)
    return text.split(",")


def _densities(text: str) -> list[float]:
    from regrow.errors import ConfigurationError

    try:
        densities = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--density takes numbers like 0.05,0.1, got {text!r}") from error
    if not all(0 < density <= 1 for density in densities):
        raise ConfigurationError(f"densities lie in (0, 1], got {text}: 0.05 keeps 5% of the weights")
    return densities


def _batches(text: str, what: str) -> int | list[int]:
    from regrow.errors import ConfigurationError

    parts = text.split(",")
    if not all(part.isdecimal() and int(part) > 0 for part in parts) or (what != "infer" and len(parts) > 1):
        raise ConfigurationError(
            f"--batch takes {'whole numbers like 1,64' if what == 'infer' else 'one whole number'}, got {text!r}"
        )
    return [int(part) for part in parts] if what == "infer" else int(parts[0])
