"""One process or several: rank, world, and the little they say to each other."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from regrow.errors import ConfigurationError

_CPU = torch.device("cpu")
_LET_GO_SECONDS = 0.1
_THREADS_PER_CORE = 4


@dataclass(frozen=True)
class Processes:
    """This process among those started by torchrun; alone otherwise."""

    rank: int = 0
    world: int = 1
    device: torch.device = _CPU

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def gather(self, values: list[float]) -> list[list[float]]:
        """The values of every process, in the order of ranks, in double precision."""
        if self.world == 1:
            return [values]
        together = torch.zeros(self.world, len(values), dtype=torch.float64, device=self.device)
        together[self.rank] = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(together)
        return together.tolist()

    def sum(self, values: list[float]) -> list[float]:
        """Sums over all processes, in double precision and in the order of ranks."""
        return [sum(column) for column in zip(*self.gather(values), strict=True)]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.sum([float(flag)])[0] > 0

    def broadcast(self, tensor: Tensor) -> Tensor:
        """The tensor of rank 0, on every rank."""
        if self.world > 1:
            dist.broadcast(tensor, src=0)
        return tensor

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()


def use_threads(threads: int) -> None:
    """Tell torch how many threads to use; 0 leaves its choice. Very many end in a crash, with no word about why."""
    most = _THREADS_PER_CORE * (os.cpu_count() or 1)
    if threads > most:
        raise ConfigurationError(
            f"threads must be at most {most}, {_THREADS_PER_CORE} for each core of this machine, got {threads}"
        )
    if threads:
        torch.set_num_threads(threads)


def join() -> Processes:
    """Enter the process group that torchrun's environment describes: NCCL on GPUs, gloo on CPUs."""
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return Processes(device=device)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size(), device)


def leave() -> None:
    """Take the process group down."""
    if dist.is_available() and dist.is_initialized():
        # Freeing the group joins gloo's threads while this one holds Python's lock, for which they wait if they have not yet let go of the
        # tensors of the last exchange. Asleep, this thread does not hold it.
        time.sleep(_LET_GO_SECONDS)
        dist.destroy_process_group()
