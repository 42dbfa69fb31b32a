"""Measure sparse execution against the fastest dense torch, interleaved in one run.

regrow bench layers --density 0.05,0.1,0.2,0.3
regrow bench train --model vgg16-d --density 0.05,0.1,0.2
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow bench``."""
    parser.add_argument("what", choices=("layers", "train"), help="single layers, or whole training steps")
    parser.add_argument("--density", default="0.05,0.1,0.2,0.3", help="comma-separated, in (0, 1]")
    parser.add_argument("--model", default="vgg16-d", help="model of `train` (default vgg16-d)")
    parser.add_argument("--batch", type=int, default=128, help="batch of `train`")
    parser.add_argument("--only", default="", help="`layers` whose name contains this")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each candidate")
    parser.add_argument("--threads", type=int, help="default: torch's choice")
    parser.add_argument("--json", help="write one record per row to this file")


def run(options: argparse.Namespace) -> int:
    """Measure, print the table, write the records."""
    from regrow.bench.command import bench
    from regrow.errors import ConfigurationError

    try:
        densities = [float(part) for part in options.density.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--density takes numbers like 0.05,0.1, got {options.density!r}") from error
    if not all(0 < density <= 1 for density in densities):
        raise ConfigurationError(f"densities lie in (0, 1], got {options.density}")
    bench(options, densities)
    return 0
