"""Gradient traffic that is as sparse as the network: a DDP communication hook.

Gradients arrive masked, so only present entries carry information: the hook gathers them, all-reduces their mean and scatters it back. In a
growth window the handle sends the missing weights' gradients besides.
"""

# No `from __future__ import annotations` here: DistributedDataParallel inspects the hook's annotations and wants types, not text.
import torch
import torch.distributed as dist
from torch import Tensor, nn

from regrow.handle import Handle
from regrow.marks import positions

# In a growth window the handle averages the whole gradient of the sparse layers besides, in single precision.
_WINDOW_BYTES = 4


class SparseTraffic:
    """State of the hook: where the present entries are, and how many bytes this rank has handed over to be averaged.

    ``dense`` is what plain data parallelism would have handed over; ``sent`` includes the gradients of growth windows.
    """

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.sent = self.dense = 0
        self._sparse = {id(sparse.parameter): sparse for sparse in handle.parameters}

    def attach(self, model: nn.parallel.DistributedDataParallel) -> None:
        """Send the gradients of a wrapped model this way."""
        model.register_comm_hook(self, _exchange)

    def count_compact(self) -> None:
        """Weights in compact storage are in no bucket: their gradients were averaged as they arrived."""
        for sparse in self.handle.parameters:
            if sparse.is_compact:
                size = sparse.parameter.element_size()
                self.sent += sparse.support.nnz * size
                self.dense += sparse.shape.numel() * size

    def present(self, parameter: Tensor) -> Tensor | None:
        """Flat positions of a sparse parameter's present entries; None for a dense one."""
        sparse = self._sparse.get(id(parameter))
        if sparse is None or sparse.reach is not None:
            return None
        support = sparse.support
        return support.derive("positions in storage", lambda: positions(_storage_order(support.mask)))


def _exchange(traffic: SparseTraffic, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    flats = [_storage_order(gradient) for gradient in bucket.gradients()]
    places = [traffic.present(parameter) for parameter in bucket.parameters()]
    packed = torch.cat([flat if place is None else flat[place] for flat, place in zip(flats, places, strict=True)])
    traffic.sent += packed.numel() * packed.element_size()
    traffic.dense += bucket.buffer().numel() * bucket.buffer().element_size()
    if bucket.is_last():
        traffic.count_compact()
    if bucket.is_last() and traffic.handle.needs_missing_gradients:
        traffic.sent += _WINDOW_BYTES * traffic.handle.numel
    packed.div_(dist.get_world_size())

    def unpack(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        sizes = [flat.numel() if place is None else place.numel() for flat, place in zip(flats, places, strict=True)]
        for flat, place, values in zip(flats, places, future.value()[0].split(sizes), strict=True):
            if place is None:
                flat.copy_(values)
            else:
                flat[place] = values
        return bucket.buffer()

    return dist.all_reduce(packed, async_op=True).get_future().then(unpack)


def _storage_order(tensor: Tensor) -> Tensor:
    """A flat view in the order of memory: channels-last gradients are views of the bucket too."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,))
