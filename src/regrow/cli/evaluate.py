"""Test a run from its newest checkpoint.

regrow evaluate runs/lenet300-... [--split test]    on sparse kernels, where most weights are missing and kernels exist
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow evaluate``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--split", help="train, val or test (default: the configuration's test split)")
    parser.add_argument(
        "--execution",
        choices=("sparse", "masked"),
        default="sparse",
        help="how layers are computed (default sparse, where kernels exist)",
    )


def run(options: argparse.Namespace) -> int:
    """Load the newest checkpoint's weights and print accuracy and loss."""
    from regrow.training.stored import evaluate_run

    found = evaluate_run(options.folder, options.split, options.execution)
    scores = found.scores
    top5 = "" if scores.top5 is None else f"  top-5 {scores.top5:.2%}"
    print(
        f"step {found.step}: accuracy {scores.accuracy:.2%}  error {1 - scores.accuracy:.2%}{top5}  loss {scores.loss:.4f}  "
        f"n = {scores.samples}  sparse layers on kernels: {found.sparse} of {found.layers}"
    )
    return 0
