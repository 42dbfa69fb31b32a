"""Answer a data set with a sparse file: accuracy, and how long answers take.

regrow infer demo.safetensors --data mnist-sample [--batch 1]
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow infer``."""
    parser.add_argument("model", type=Path, metavar="MODEL", help="a file written by `regrow export` or regrow.save")
    parser.add_argument("--data", help="name or path of a data set (default: the one it was trained on)")
    parser.add_argument("--split", default="test", help="train, val or test (default test)")
    parser.add_argument("--batch", type=int, default=64, help="samples per call (default 64)")
    parser.add_argument("--threads", type=int, help="default: torch's choice")
    parser.add_argument(
        "--allow", action="append", default=[], metavar="MODULE:CLASS", help="a class that the file may import"
    )


def run(options: argparse.Namespace) -> int:
    """Print one line of accuracy, one of times."""
    from regrow.shipping.infer import infer

    print(infer(options))
    return 0
