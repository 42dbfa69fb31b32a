"""``regrow bench wide``: an output layer of hundreds of thousands of units that exists only sparse, beside the dense one.

Forward, backward and SGD of one layer, in turns in one run; and the bytes of weights, gradients and optimizer state.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

import regrow.nn
from regrow.api import sparsify
from regrow.bench.timing import quartiles, samples
from regrow.errors import UnsupportedError
from regrow.memory import Memory, account

INPUTS, OUTPUTS, DENSITY, BATCH = 768, 670_000, 0.042, 128
_LEAST_MEMORY = 16e9
_NEVER = 10**6


@dataclass(frozen=True)
class WideResult:
    """Milliseconds of a step and bytes, dense and compact. ``state`` is weights, gradients and optimizer state."""

    layer: str
    density: float
    batch: int
    dense_ms: float
    compact_ms: float
    ratio: float
    spread: dict[str, tuple[float, float]]
    dense_state: int
    compact_state: int
    state_ratio: float
    positions_ratio: float
    lists_ratio: float

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def line(self) -> str:
        """For the terminal."""
        return (
            f"{self.layer} {self.density:.1%} batch {self.batch}: dense {self.dense_ms:,.0f} ms, compact {self.compact_ms:,.0f} ms "
            f"({self.ratio:.2f}x); weights, gradients and optimizer state {self.state_ratio:.1%} of dense, {self.positions_ratio:.1%} "
            f"with positions, {self.lists_ratio:.1%} with all lists of the kernels"
        )


class _Step:
    """One layer under SGD with given gradients of its outputs."""

    def __init__(self, layer: nn.Module, x: Tensor, grad: Tensor, sparse: bool) -> None:
        self.model, self.x, self.grad = nn.Sequential(layer), x.clone().requires_grad_(), grad
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, fused=True)
        how: dict[str, Any] = {"execution": "sparse", "storage": "compact", "process_group": False}
        how |= {"steps": 10 * _NEVER, "update_every": _NEVER}
        self.handle = sparsify(self.model, self.optimizer, "set", **how) if sparse else None

    def __call__(self) -> None:
        self.x.grad = None
        self.optimizer.zero_grad()
        self.model(self.x).backward(self.grad)
        self.optimizer.step()

    def memory(self) -> Memory:
        return account(self.model, self.optimizer, None if self.handle is None else self.handle.network)


def measure(
    inputs: int = INPUTS, outputs: int = OUTPUTS, density: float = DENSITY, batch: int = BATCH, repeats: int = 3
) -> WideResult:
    """Both layers in turns."""
    source = torch.Generator().manual_seed(0)
    x, grad = (torch.randn(batch, size, generator=source) for size in (inputs, outputs))
    layers = {
        "dense": nn.Linear(inputs, outputs, bias=False),
        "compact": regrow.nn.SparseLinear(inputs, outputs, density, bias=False),
    }
    arms = {name: _Step(layer, x, grad, name == "compact") for name, layer in layers.items()}
    taken = {name: [1e3 * value for value in values] for name, values in samples(arms, repeats).items()}
    took = {name: statistics.median(values) for name, values in taken.items()}
    parts = {name: arm.memory() for name, arm in arms.items()}
    sums = {
        name: sum(found.sum(part) for part in ("weights", "gradients", "optimizer")) for name, found in parts.items()
    }
    positions, lists = (parts["compact"].sum(part) for part in ("masks", "lists"))
    shares = [(sums["compact"] + more) / sums["dense"] for more in (0, positions, positions + lists)]
    return WideResult(
        f"linear {inputs}->{outputs}",
        density,
        batch,
        took["dense"],
        took["compact"],
        took["dense"] / took["compact"],
        {name: quartiles(values) for name, values in taken.items()},
        sums["dense"],
        sums["compact"],
        *shares,
    )


def refuse_small_machine() -> None:
    """The dense layer with its gradient needs several GB, and room to breathe."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if there < _LEAST_MEMORY:
        raise UnsupportedError(
            f"bench wide is skipped: it needs 16 GB of memory, and this machine has {there / 1e9:.0f}"
        )
