"""`python -m regrow.bench layers --density 0.05,0.1 [--threads 2] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence


def _densities(text: str) -> list[float]:
    values = [float(part) for part in text.split(",")]
    if not all(0 < value <= 1 for value in values):
        raise argparse.ArgumentTypeError(f"densities lie in (0, 1], got {text}")
    return values


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="regrow.bench", description="Sparse execution against dense torch, in the same run."
    )
    commands = top.add_subparsers(dest="command", required=True)
    layers = commands.add_parser("layers", help="single layers, forward + backward")
    layers.add_argument("--density", type=_densities, default=[0.05, 0.1, 0.2, 0.3], help="comma-separated, in (0, 1]")
    layers.add_argument("--only", default="", help="measure only layers whose name contains this")
    layers.add_argument("--rounds", type=int, default=9)
    layers.add_argument("--threads", type=int, default=None, help="default: torch's choice")
    layers.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for --threads 1 on a busy machine"
    )
    layers.add_argument("--json", default=None, help="write one record per row to this file")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, write the records."""
    arguments = parser().parse_args(argv)
    import torch

    from regrow.bench import layers, machine, timing

    if arguments.clock == "cpu" and arguments.threads != 1:
        parser().error("--clock cpu counts one thread: add --threads 1")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    timing.tune_allocator()
    about, peak = machine.describe(), machine.peak_gflops(clock=arguments.clock)
    print(", ".join(f"{key} {value}" for key, value in about.items()) + f", peak {peak:.0f} GFLOP/s")
    columns = ("density", "dense ms", "sparse ms", "ratio", "useful GFLOP/s", "of peak")
    print(f"{'layer':42} " + " ".join(f"{name:>9}" for name in columns))
    chosen = [spec for spec in layers.LAYERS if arguments.only in spec.name]
    rows = []
    for row in layers.measure_all(arguments.density, chosen, arguments.rounds, arguments.clock):
        rows.append(row.record())
        timings = f"{row.dense_ms:9.2f} {row.sparse_ms:9.2f} {row.ratio:8.2f}x"
        print(
            f"{row.layer:42} {row.density:9.0%} {timings} {row.useful_gflops:14.0f} {row.useful_gflops / peak:9.0%}",
            flush=True,
        )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(
                {
                    "machine": about,
                    "peak_gflops": peak,
                    "rounds": arguments.rounds,
                    "clock": arguments.clock,
                    "rows": rows,
                },
                file,
                indent=1,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
