"""What each of two processes does in the tests of distributed runs: all scenarios in one start-up, results in a file."""

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regrow
from regrow.errors import StateError
from regrow.ranks import Ranks
from regrow.topology import score
from tests.execution import small
from tests.execution.automatic import DENSE_WINS, SPARSE_WINS, Stopwatch, sparse_layers, start, train
from tests.support.training import batches, bits, loss_of, sgd, small_net

STEPS = 13
COMPACT = {"execution": "sparse", "storage": "compact"}
CANDIDATES = {**COMPACT, "window_candidates": 1}
ARGUMENTS = {"density": 0.3, "steps": 40, "update_every": 4, "window_tolerance": 0}


def data(rank=None, count=STEPS):
    """Whole batches in float64, or a rank's half of each."""
    whole = [(x.double(), y) for x, y in batches(count)]
    return whole if rank is None else [(x[rank::2], y[rank::2]) for x, y in whole]


def network():
    return small_net().double()


def run(rank, micro_batches=1, method="sparse-momentum", wrap_first=True, sparse=None, **options):
    """Train with or without (rank None) DistributedDataParallel; masks, weights, first evidence and number of comparisons."""
    inner = network()
    ddp = (lambda m: DistributedDataParallel(m, **options)) if rank is not None else (lambda m: m)
    model = ddp(inner) if wrap_first else inner
    optimizer = sgd(inner)
    with counted() as comparisons:
        handle = regrow.sparsify(model, optimizer, method, **ARGUMENTS, **(sparse or {}))
        model = model if wrap_first else ddp(inner)
        evidence = None
        for inputs, targets in data(rank):
            optimizer.zero_grad()
            parts = list(zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True))
            for index, part in enumerate(parts):
                waiting = index < len(parts) - 1 and rank is not None
                with model.no_sync() if waiting else contextlib.nullcontext():
                    (loss_of(model, part) / len(parts)).backward()
            optimizer.step()
            first = handle.parameters[0].moments.first
            evidence = first.clone() if evidence is None and first is not None else evidence
    state, names = inner.state_dict(), [name for name, _ in inner.named_parameters()]
    weights = torch.cat([state[name].flatten() for name in names])
    return {
        "masks": bits(handle), "weights": weights, "evidence": evidence, "updates": handle.updates, "compared": len(comparisons)
    }  # fmt: skip


@contextlib.contextmanager
def counted():
    calls, agree = [], Ranks.agree
    Ranks.agree = lambda self, masks, when: calls.append(when) or agree(self, masks, when)
    try:
        yield calls
    finally:
        Ranks.agree = agree


def different(rank, **both):
    """Arguments that differ between the ranks: the error, and the weights left."""
    model = network()
    mine = {**ARGUMENTS, **{name: values[rank] for name, values in both.items()}}
    try:
        regrow.sparsify(model, sgd(model), **mine)
    except StateError as error:
        return {"error": str(error), "untouched": int(model[0].weight.count_nonzero())}
    return {"error": None}


def drifting(rank):
    """Gradients that nobody averages: masks part at the first update."""
    model = network()
    optimizer = sgd(model, lr=1.0)
    handle = regrow.sparsify(model, optimizer, **ARGUMENTS)
    start = bits(handle).clone()
    try:
        for batch in data(rank):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    except StateError as error:
        return {"error": str(error), "step": handle.step, "kept": torch.equal(bits(handle), start)}
    return {"error": None}


def alone(rank):
    """``process_group=False``: every rank for itself, here with its own seed."""
    model = network()
    handle = regrow.sparsify(model, sgd(model), **ARGUMENTS, seed=rank, process_group=False)
    return {"masks": bits(handle), "size": handle.network.ranks.size}


def calibrated(rank):
    """SNIP on a different batch per rank: scores are averaged, masks agree."""
    model = network()
    batch = data(rank, 1)[0]
    handle = regrow.sparsify(model, sgd(model), "snip", density=0.3, calibration=lambda: loss_of(model, batch))
    return {"masks": bits(handle)}


def automatic(rank, *figures):
    """``auto`` with a stopwatch per rank, past topology updates; what was chosen, how often, and how long rank 0 says it took."""
    inner, optimizer, handle = start(Stopwatch(*figures[rank]))
    train(DistributedDataParallel(inner), optimizer, 20, first=1000 * rank)
    decision = handle.switch.auto.verdict
    return {
        "sparse": sorted(sparse_layers(handle)), "decisions": handle.switch.verdicts, "updates": handle.updates, "masks": bits(handle),
        "decision": None if decision is None else decision.as_dict(),
        "weights": torch.cat([p.detach().flatten() for p in inner.parameters()]),
    }  # fmt: skip


def priced(rank):
    """``costs="measured"`` with a stopwatch per rank, past topology updates."""
    os.environ["REGROW_CACHE"] += "-prices"  # figures of other scenarios must not answer
    inner, optimizer, handle = small.start("masked", cost_power=1.0, costs="measured")
    handle.network.prices.timer = Stopwatch(("Conv2d", 5.0 + rank), ("Linear", 2.0 + 7 * rank))
    train(DistributedDataParallel(inner), optimizer, 20, first=1000 * rank)
    return {"costs": handle.network.costs, "updates": handle.updates, "masks": bits(handle)}


SCENARIOS = {
    "plain": run,
    "rigl": lambda rank: run(rank, method="rigl"),
    "bucket views": lambda rank: run(rank, gradient_as_bucket_view=True),
    "sparsify first": lambda rank: run(rank, wrap_first=False),
    "compact": lambda rank: run(rank, wrap_first=False, sparse=COMPACT),
    "compact candidates": lambda rank: run(rank, wrap_first=False, sparse=CANDIDATES),
    "compact rigl": lambda rank: run(rank, wrap_first=False, method="rigl", sparse=COMPACT),
    "compact accumulation": lambda rank: run(rank, micro_batches=2, wrap_first=False, sparse=COMPACT),
    "accumulation": lambda rank: run(rank, micro_batches=2),
    "different seed": lambda rank: different(rank, seed=(0, 1)),
    "different update_every": lambda rank: different(rank, update_every=(4, 5)),
    "different execution": lambda rank: different(rank, execution=("masked", "auto")),
    "different sparse layers": lambda rank: different(rank, scope=("fully-sparse", "dense:@last")),
    "different grow": lambda rank: different(rank, grow=(score.random, score.momentum)),
    "drifting": drifting,
    "alone": alone,
    "calibrated": calibrated,
    "sparse wins on rank 0": lambda rank: automatic(rank, SPARSE_WINS, DENSE_WINS),
    "dense wins on rank 0": lambda rank: automatic(rank, DENSE_WINS, SPARSE_WINS),
    "priced": priced,
    "first": lambda rank: Ranks().first({"rank": rank}),
}


def work(rank, folder):
    torch.set_num_threads(1)
    os.environ["REGROW_CACHE"] = f"{folder}/cache{rank}"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        results = {name: scenario(rank) for name, scenario in SCENARIOS.items()}
        torch.save(results, Path(folder) / f"rank{rank}.pt")
    finally:
        dist.destroy_process_group()
