"""Train two small networks on handwritten digits, dense and sparse, and compare them.

regrow demo
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow demo``."""
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder of its runs (default: runs/demo)")
    parser.add_argument(
        "--sample", action="store_true", help="train on the sample of MNIST in the package, nothing is fetched"
    )
    parser.add_argument("--max-steps", type=int, default=0, help="end every run after so many steps, for a quick look")


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    from regrow.demo.main import demo

    return demo(options.out, "mnist-sample" if options.sample else "", options.max_steps)
