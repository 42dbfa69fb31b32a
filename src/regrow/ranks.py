"""Several processes: the same masks everywhere, or a loud stop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from regrow import gaps
from regrow.errors import StateError
from regrow.marks import Marks
from regrow.topology.journal import pack


class Ranks:
    """The processes that train together; a single one where torch.distributed is not in use.

    Args:
        group: a process group; ``None`` takes the default group if there is one, ``False`` ignores all others.
    """

    def __init__(self, group: dist.ProcessGroup | bool | None = None) -> None:
        self.group = None if isinstance(group, bool) else group
        self._alone = group is False

    @property
    def size(self) -> int:
        """How many processes; looked up anew, as a process group may start after ``sparsify``."""
        running = dist.is_available() and dist.is_initialized() and not self._alone
        return dist.get_world_size(self.group) if running else 1

    @property
    def rank(self) -> int:
        """Which of them this process is."""
        return dist.get_rank(self.group) if self.size > 1 else 0

    def average(self, tensor: Tensor) -> Tensor:
        """Mean over ranks, in place, in the order of DistributedDataParallel: divide, then sum."""
        if self.size > 1:
            tensor.div_(self.size)
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def first(self, value: Any) -> Any:
        """The value of the first rank, on every rank: for what each of them would measure differently."""
        if self.size == 1:
            return value
        held, group = [value], self.group
        dist.broadcast_object_list(held, src=0 if group is None else dist.get_global_rank(group, 0), group=group)
        return held[0]

    def spread(self, tensor: Tensor) -> Tensor:
        """The first rank's numbers, in place on every rank."""
        if self.size > 1:
            source = 0 if self.group is None else dist.get_global_rank(self.group, 0)
            dist.broadcast(tensor, src=source, group=self.group)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order."""
        if self.size == 1:
            return [value]
        everyone: list[Any] = [None] * self.size
        dist.all_gather_object(everyone, value, group=self.group)
        return everyone

    def agree(self, masks: Iterable[Tensor | Marks], when: str) -> None:
        """Compare a hash of all masks between ranks; raise on every rank if they differ."""
        if self.size == 1:
            return
        device = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        mine = torch.tensor(list(bytes.fromhex(fingerprint(masks))), dtype=torch.int64, device=device)
        extremes = torch.stack([mine, -mine])
        dist.all_reduce(extremes, op=dist.ReduceOp.MAX, group=self.group)
        if not torch.equal(extremes[0], -extremes[1]):
            raise StateError(
                f"masks differ between ranks {when}: give every rank the same seed, model weights and method, "
                "and let gradients be averaged before the optimizer step (DistributedDataParallel does)"
            )


def fingerprint(masks: Iterable[Tensor | Marks]) -> str:
    """A hash of masks in order."""
    digest = hashlib.blake2b(digest_size=16)
    for mask in masks:
        content = gaps.encode(mask.positions) if isinstance(mask, Marks) else pack(mask)
        digest.update(content.numpy().tobytes())
    return digest.hexdigest()
