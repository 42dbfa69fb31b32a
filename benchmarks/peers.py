"""Single layers, forward + backward, beside other sparse backward passes for PyTorch on CPUs, in one run.

    pip install pybind11 && pip install --no-build-isolation --no-deps sparseprop
    pip install --no-deps sparselab==0.2.2
    python benchmarks/peers.py [--density 0.05,0.1,0.2,0.3] [--repeats 5] [--only "conv 3x3"] [--json FILE]

SparseProp (Nikdan et al. 2023): fixed masks, batches of whole eights; of its two convolutions the faster counts. SparseLab: linear layers,
with a mask of its own drawing at the same density. Each is left out with a word where it is missing. Dense torch, their modules and our
kernels take turns; medians. Their modules go through autograd and start from ordinary tensors, as they are made to; ours are the three
passes as `regrow bench layers` measures them: maps in their own layout, features as torch has them, weights dense-shaped or compact.
`*_bytes` are those that a module keeps after a pass: weights, where they are, and lists or transposes made of them.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regrow.allocator import keep_buffers
from regrow.bench.layers import COMPACT, LAYERS, PASSES, Case, candidates
from regrow.bench.timing import medians
from regrow.environment import describe
from regrow.execution import SparsePattern
from regrow.execution.kernels import passes
from regrow.execution.modules.geometry import geometry_of

Peer = Callable[[Case], list[nn.Module]]


def sparseprop(case: Case) -> list[nn.Module]:
    """SparseProp's modules for a layer; none where it cannot take the batch."""
    from sparseprop.modules import SparseConv2d, SparseLinear

    if case.spec.batch % 8:
        return []
    if case.spec.size:
        return [SparseConv2d.from_dense(case.module, vectorizing_over_on=over) for over in (False, True)]
    return [SparseLinear.from_dense(case.module)]


def sparselab(case: Case) -> list[nn.Module]:
    """SparseLab's module for a linear layer."""
    from sparselab import SparseLinear, ops

    if case.spec.size:
        return []
    # It finds transposes by id() and shape: those of an earlier row's layer would be taken for this one's.
    ops._transpose_cache.clear()
    made = SparseLinear(case.spec.inputs, case.spec.outputs, bias=False, sparsity=1 - case.density)
    made.transposes = ops._transpose_cache  # memory that it takes, too
    return [made]


PEERS: dict[str, Peer] = {"sparseprop": sparseprop, "sparselab": sparselab}


def installed() -> dict[str, Peer]:
    """Those that can be imported; a word about the others."""
    found = {}
    for name, peer in PEERS.items():
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name} is left out: {error}")
        else:
            found[name] = peer
    return found


def both_passes(module: nn.Module, case: Case) -> Callable[[], None]:
    """Forward and backward of a module on ordinary tensors."""
    x = case.x.clone().requires_grad_()

    def run() -> None:
        x.grad = None
        module.zero_grad(set_to_none=True)
        module(x).backward(case.grad)

    return run


def kept_bytes(*owners: object) -> int:
    """Bytes of all tensors and arrays that objects keep, wherever inside them; memory that two share counts once."""
    sizes: dict[int, int] = {}
    seen: dict[int, object] = {}  # the objects too, so that no other gets the number of one
    waiting = [*owners]
    while waiting:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner
        if isinstance(owner, Tensor):
            sizes[owner.data_ptr()] = owner.numel() * owner.element_size()
        elif isinstance(owner, np.ndarray):
            sizes[owner.ctypes.data] = owner.nbytes
        else:
            waiting += inside(owner)
    return sum(sizes.values())


def inside(owner: object) -> list[Any]:
    """What an object holds; one of native code shows it as properties."""
    if isinstance(owner, dict):
        return [*owner.values()]
    if isinstance(owner, list | tuple):
        return [*owner]
    if hasattr(owner, "__dict__"):
        return [vars(owner)]
    return [getattr(owner, name) for name, kind in vars(type(owner)).items() if isinstance(kind, property)]


def own_bytes(case: Case) -> int:
    """Present weights and the lists of both plans: what our kernels read where storage is compact."""
    pattern, size = SparsePattern(case.mask, geometry_of(case.module)), passes.map_size(case.x)
    plans = (pattern.plan(each, *size, case.weight.dtype, len(case.x)) for each in ("forward", "input_gradient"))
    return case.weight.element_size() * pattern.support.nnz + sum(plan.nbytes for plan in plans)


def measure(case: Case, peers: dict[str, Peer], repeats: int) -> dict[str, Any]:
    """One row: milliseconds, ratios to the fastest dense setting, and ours to theirs."""
    modules = {f"{name} {i}": module for name, peer in peers.items() for i, module in enumerate(peer(case))}
    theirs = {name: both_passes(module, case) for name, module in modules.items()}
    seconds = medians({**candidates(case), **theirs}, repeats)
    dense = min(value for name, value in seconds.items() if name.startswith("dense"))
    ours, compact = (sum(seconds[name] for name in names) for names in (PASSES, COMPACT))
    row = {"layer": case.spec.name, "density": case.density, "dense_ms": 1e3 * dense, "sparse_ms": 1e3 * ours}
    row |= {"ratio": dense / ours, "compact_ms": 1e3 * compact, "compact_ratio": dense / compact}
    row["compact_bytes"] = own_bytes(case)
    for name in peers:
        times = [value for key, value in seconds.items() if key.startswith(name)]
        if times:
            row |= {
                f"{name}_ms": 1e3 * min(times),
                f"{name}_ratio": dense / min(times),
                f"over_{name}": min(times) / ours,
                f"compact_over_{name}": min(times) / compact,
            }
            row[f"{name}_bytes"] = min(kept_bytes(m) for key, m in modules.items() if key.startswith(name))
    return row


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--density", default="0.05,0.1,0.2,0.3")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    keep_buffers()
    peers, rows = installed(), []
    for spec in (spec for spec in LAYERS if options.only in spec.name):
        for density in map(float, options.density.split(",")):
            row = measure(Case(spec, density), peers, options.repeats)
            rows.append(row)
            others = "   ".join(
                f"{name} {row[f'{name}_ratio']:5.2f}x (ours over it {row[f'over_{name}']:5.2f}x)"
                for name in peers
                if f"{name}_ratio" in row
            )
            line = f"{spec.name:36s} {density:5.0%}  dense {row['dense_ms']:8.2f} ms   ours {row['ratio']:5.2f}x, "
            print(f"{line}compact {row['compact_ratio']:5.2f}x   {others}", flush=True)
    if options.json:
        content = {"machine": describe(), "repeats": options.repeats, "threads": torch.get_num_threads(), "rows": rows}
        options.json.write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
