"""What sparse training costs beside the plain loop, when nothing is gained from the zeros yet (masked execution).

    python benchmarks/overhead.py [--json FILE] [--rounds N] [--only NAME] [--busy]

Sparse momentum at 5% density, one topology update per 500 steps, SGD with Nesterov momentum. A run of 500 steps is not repeated
as a whole; its three kinds of step are measured and weighed by how often they occur:

    masked   478 steps   gradient and weights are multiplied by the masks
    window    21 steps   and the gradient of missing weights is collected (the last K = 22 steps before an update)
    update     1 step    and the topology update follows

    ratio = (478 masked + 21 window + update) / (500 dense)        goal: at most 1.03

Dense and sparse steps are timed in one process in alternating blocks; every round gives one ratio, the table shows the
median and the range of all rounds. Differences of a few per cent drown in the noise of long steps, so the cost is also
measured alone: "alone" takes the same parameters without forward and backward work (a loss linear in them), where a step is
only optimizer and hooks; sparse minus plain is regrow's time, and "alone %" its share of the dense step.

On a machine that does other work at the same time, ``--busy`` uses one thread and counts the process's processor time instead of
wall time, which waiting for a core does not lengthen.

The dense steps are kept short for a small machine: ResNet-50 takes 16 images of 128x128 instead of 256 of 224x224. Masking
costs the same for any batch, so the published setting has a far smaller share of it: these ratios are upper bounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import overhead_networks as networks
import torch
from torch import Tensor, nn

import regrow

INTERVAL = 500
KINDS = ("masked", "window", "update")


@dataclass(frozen=True)
class Case:
    """A network, its batch, and how many steps a timed block has."""

    name: str
    build: Callable[[], nn.Module]
    batch: tuple[int, ...]
    classes: int
    block: int


CASES = (
    Case("LeNet-5-Caffe", networks.lenet5_caffe, (100, 1, 28, 28), 10, 20),
    Case("VGG16-D", networks.vgg16_d, (128, 3, 32, 32), 10, 1),
    Case("ResNet-50", networks.resnet50, (16, 3, 128, 128), 1000, 1),
)


@dataclass(frozen=True)
class Result:
    """Medians over rounds, in milliseconds per step; ratios side by side, one per round."""

    network: str
    weights: int
    batch: tuple[int, ...]
    rounds: int
    dense_ms: float
    masked_ms: float
    window_ms: float
    update_ms: float
    ratio: float
    ratio_lowest: float
    ratio_highest: float
    alone_ms: dict[str, float]
    alone_share: float


class Loop:
    """A plain training loop, sparse or not: the loop is the same."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, model: nn.Module, loss: Callable[[nn.Module], Tensor], sparse: bool) -> None:
        self.model, self.loss = model, loss
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.handle = (
            regrow.sparsify(model, self.optimizer, density=0.05, steps=100 * INTERVAL, update_every=INTERVAL)
            if sparse
            else None
        )

    def step(self) -> None:
        """One training step."""
        self.optimizer.zero_grad()
        self.loss(self.model).backward()
        self.optimizer.step()

    def timed(self, steps: int) -> float:
        """Milliseconds per step."""
        start = self.clock()
        for _ in range(steps):
            self.step()
        return (self.clock() - start) * 1e3 / steps

    def jump(self, step: int) -> None:
        """Move the sparse run to a step of its first interval."""
        assert self.handle is not None
        self.handle.step = step
        self.handle.window.forget_schedule()
        self.handle.window.look_ahead(step)


def window_length(loop: Loop) -> int:
    """K, the steps before an update in which gradients of missing weights are collected."""
    assert loop.handle is not None
    return loop.handle.window.length(0)


def sparse_times(loop: Loop, block: int) -> dict[str, float]:
    """Milliseconds of each kind of step."""
    times = {}
    for kind, start in zip(KINDS, (0, INTERVAL - window_length(loop), INTERVAL - 1), strict=True):
        loop.jump(start)
        assert loop.handle is not None
        before = loop.handle.updates
        times[kind] = loop.timed(1 if kind == "update" else block)
        assert loop.handle.needs_missing_gradients == (kind == "window")
        assert loop.handle.updates - before == (kind == "update")
    return times


def over_interval(times: dict[str, float], window: int) -> float:
    """Mean milliseconds per step over one interval."""
    return ((INTERVAL - window) * times["masked"] + (window - 1) * times["window"] + times["update"]) / INTERVAL


def rounds_of(plain: Loop, sparse: Loop, block: int, rounds: int) -> list[tuple[float, dict[str, float]]]:
    """Interleaved rounds; who comes first alternates."""
    for loop in (plain, sparse):
        loop.step()
    sparse_times(sparse, 1)
    found = []
    for number in range(rounds):
        if number % 2:
            times = sparse_times(sparse, block)
            found.append((plain.timed(block), times))
        else:
            dense = plain.timed(block)
            found.append((dense, sparse_times(sparse, block)))
    return found


def alone(case: Case, rounds: int) -> dict[str, float]:
    """Median extra milliseconds of each kind of step, measured without forward and backward work."""
    model = case.build()
    plain, sparse = (Loop(networks.Bare(model), lambda bare: bare(), sparse=s) for s in (False, True))
    found = rounds_of(plain, sparse, max(2, case.block), rounds)
    extra = {kind: statistics.median(times[kind] - dense for dense, times in found) for kind in KINDS}
    return {**extra, "mean": over_interval(extra, window_length(sparse))}


def measure(case: Case, rounds: int) -> Result:
    """Compare one network."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(case.batch), torch.randint(case.classes, case.batch[:1])
    plain, sparse = (
        Loop(case.build(), lambda model: nn.functional.cross_entropy(model(inputs), targets), sparse=s)
        for s in (False, True)
    )
    found = rounds_of(plain, sparse, case.block, rounds)
    ratios = [over_interval(times, window_length(sparse)) / dense for dense, times in found]
    dense = statistics.median(dense for dense, _ in found)
    masked, window, update = (statistics.median(times[kind] for _, times in found) for kind in KINDS)
    extra = alone(case, 3 * rounds)
    return Result(
        case.name, networks.weights(plain.model), case.batch, rounds, dense, masked, window, update,
        statistics.median(ratios), min(ratios), max(ratios), extra, extra["mean"] / dense,
    )  # fmt: skip


def machine() -> dict[str, object]:
    """Where the figures come from."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = f"{len(names)} x {names[0]}" if names else cpu
    return {
        "cpu": cpu,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def show(results: list[Result], where: dict[str, object]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="sparse momentum, masked execution, against the plain loop")
    for column in ("network", "weights", "batch", "dense ms", "masked ms", "window ms", "update ms"):
        table.add_column(column, justify="right")
    for column in ("ratio (range)", "n", "alone ms: masked / window / update", "alone %"):
        table.add_column(column, justify="right")
    for r in results:
        table.add_row(
            r.network, f"{r.weights:,}", "x".join(map(str, r.batch)),
            *(f"{ms:.1f}" for ms in (r.dense_ms, r.masked_ms, r.window_ms, r.update_ms)),
            f"{r.ratio:.3f} ({r.ratio_lowest:.3f}-{r.ratio_highest:.3f})", str(r.rounds),
            " / ".join(f"{r.alone_ms[kind]:.2f}" for kind in KINDS), f"{r.alone_share:.2%}",
        )  # fmt: skip
    console = Console(width=170)
    console.print(table)
    console.print(", ".join(f"{key} {value}" for key, value in where.items()))


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="overhead of masking and topology updates against the plain loop")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds per network")
    parser.add_argument("--only", choices=[case.name for case in CASES], help="one network")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time: for a machine under load")
    arguments = parser.parse_args()
    if arguments.busy:
        torch.set_num_threads(1)
        Loop.clock = staticmethod(time.process_time)
    where = {**machine(), "clock": Loop.clock.__name__}
    cases = [case for case in CASES if arguments.only in (None, case.name)]
    results = [measure(case, arguments.rounds) for case in cases]
    show(results, where)
    if arguments.json:
        data = {"machine": where, "interval": INTERVAL, "results": [asdict(r) for r in results]}
        arguments.json.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
