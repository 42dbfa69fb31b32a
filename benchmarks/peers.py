"""Single layers, forward + backward, beside SparseProp, the other published sparse backward for PyTorch on CPUs.

    pip install pybind11 && pip install --no-build-isolation --no-deps sparseprop
    python benchmarks/peers.py [--density 0.05,0.1,0.2,0.3] [--repeats 5] [--only "conv 3x3"] [--json FILE]

SparseProp (Nikdan et al. 2023) keeps a fixed mask in compressed form; of its two convolutions the faster counts. Dense torch, its modules
and our kernels take turns in one run; medians. Its modules go through autograd and start from ordinary tensors, as they are made to; ours
are the three passes as `regrow bench layers` measures them, on tensors in their own layout.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch

from regrow.allocator import keep_buffers
from regrow.bench.layers import LAYERS, PASSES, Case, candidates
from regrow.bench.timing import medians
from regrow.environment import describe


def peer(case: Case) -> dict[str, Callable[[], object]]:
    """SparseProp's forward and backward for a layer."""
    from sparseprop.modules import SparseConv2d, SparseLinear

    if case.spec.size:
        made = [SparseConv2d.from_dense(case.module, vectorizing_over_on=over) for over in (False, True)]
    else:
        made = [SparseLinear.from_dense(case.module)]
    x = case.x.clone().requires_grad_()

    def both(module: torch.nn.Module) -> Callable[[], object]:
        def run() -> None:
            x.grad = None
            module.zero_grad(set_to_none=True)
            module(x).backward(case.grad)

        return run

    return {f"sparseprop {i}": both(module) for i, module in enumerate(made)}


def measure(case: Case, repeats: int) -> dict[str, object]:
    """One row: milliseconds, our ratio to the fastest dense setting, SparseProp's, and ours to SparseProp's."""
    seconds = medians({**candidates(case), **peer(case)}, repeats)
    dense = min(value for name, value in seconds.items() if name.startswith("dense"))
    theirs = min(value for name, value in seconds.items() if name.startswith("sparseprop"))
    ours = sum(seconds[name] for name in PASSES)
    row = {"layer": case.spec.name, "density": case.density, "dense_ms": 1e3 * dense, "sparseprop_ms": 1e3 * theirs}
    ratios = {"ratio": dense / ours, "sparseprop_ratio": dense / theirs, "over_sparseprop": theirs / ours}
    return row | {"sparse_ms": 1e3 * ours} | ratios


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", default="0.05,0.1,0.2,0.3")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_buffers()
    rows = []
    # SparseProp takes batches that are multiples of eight.
    for spec in (spec for spec in LAYERS if options.only in spec.name and spec.batch % 8 == 0):
        for density in map(float, options.density.split(",")):
            row = measure(Case(spec, density), options.repeats)
            rows.append(row)
            print(
                f"{spec.name:36s} {density:5.0%}  dense {row['dense_ms']:8.2f} ms   ours {row['ratio']:5.2f}x   "
                f"SparseProp {row['sparseprop_ratio']:5.2f}x   ours over SparseProp {row['over_sparseprop']:5.2f}x",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"machine": describe(), "repeats": options.repeats, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
