"""Write a run's network to a file that runs elsewhere; the ending of its name says which kind.

regrow export runs/demo --to demo.safetensors                  sparse: present weights only, for regrow.load or NumPy
regrow export runs/demo --to demo.safetensors --values bfloat16
regrow export runs/demo --to demo.onnx                         dense weights of the channels that are left, for any runtime
regrow export runs/demo --to demo.pt2 --dense                  the same as a torch.export program, for plain torch
regrow export runs/demo --to demo.pt2                          on sparse kernels: import regrow before you load it
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``regrow export``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument(
        "--to", type=Path, required=True, metavar="FILE", help="a name with .safetensors, .onnx or .pt2"
    )
    parser.add_argument("--values", default="float32", help=".safetensors: float32, bfloat16 or float16")
    parser.add_argument(
        "--dense", action="store_true", help="all weights, zeros too; .pt2: channels removed, needs no regrow"
    )
    parser.add_argument(
        "--sparse-initialisers",
        action="store_true",
        help=".onnx: store sparse weights sparse (ONNX Runtime reads them)",
    )
    parser.add_argument("--quiet", action="store_true", help="do not list removed channels")


def run(options: argparse.Namespace) -> int:
    """Write, and say what was taken out."""
    from regrow.shipping.export import Wish, export_run
    from regrow.training.folder import RunFolder

    wish = Wish(options.values, options.dense, options.sparse_initialisers)
    size, frozen = export_run(options.folder, options.to, wish)
    if not RunFolder(options.folder).result.is_file():
        print("the run is not finished: this is its newest checkpoint", file=sys.stderr)
    if not options.quiet:
        print(f"not traced: {frozen.untraced}" if frozen.removal is None else frozen.removal)
    print(f"{options.to}: {size:,} bytes")
    return 0
