"""Two processes train together and must hold the same masks."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from regrow.methods import Method
from regrow.ranks import fingerprint
from regrow.testing.trial import STEPS, Subject, Trial

Named = str | tuple[str, Mapping[str, Any]] | Callable[[], Method]


def check_ranks(methods: Iterable[Named], world: int = 2) -> None:
    """Train every method with DistributedDataParallel on ``world`` gloo processes; masks and weights must agree.

    Args:
        methods: registered names, pairs of name and options, or functions of a module that return a :class:`regrow.Method`, for methods
            that are not registered. One start of the processes serves them all.
        world: number of processes.
    """
    named = [(m[0], dict(m[1])) if isinstance(m, tuple) else (m, {}) for m in methods]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_train_all, (world, named, folder), nprocs=world)
        results = [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(world)]
    for name, digests in results[0].items():
        for rank, other in enumerate(results[1:], start=1):
            assert other[name] == digests, f"method {name}: rank {rank} ends elsewhere than rank 0"


def _train_all(rank: int, world: int, named: list[tuple[Any, dict[str, Any]]], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    try:
        subjects = [Subject(of if isinstance(of, str) else of(), options) for of, options in named]
        found = {f"{s.recipe.name} {dict(s.options)}": _train(s, rank) for s in subjects}
        torch.save(found, Path(folder) / f"{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _train(subject: Subject, rank: int) -> list[str]:
    """Hashes of masks after every step, then of the weights; each rank sees its own data."""
    trial = Trial(subject, process_group=None)
    parallel = nn.parallel.DistributedDataParallel(trial.model)
    digests = []
    while trial.done < STEPS:
        trial.optimizer.zero_grad()
        inputs, targets = trial.batch(trial.done + 100 * rank)
        (parallel(inputs) - targets).square().mean().backward()
        trial.optimizer.step()
        trial.done += 1
        digests.append(fingerprint(trial.masks()))
    weights = b"".join(p.detach().numpy().tobytes() for p in trial.model.parameters())
    return [*digests, hashlib.blake2b(weights).hexdigest()]
