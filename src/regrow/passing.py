"""One forward and backward pass as in training, of which nothing remains: what it keeps in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def saved_bytes(model: nn.Module, example: Tensor | tuple[Any, ...]) -> int:
    """Bytes that a forward pass keeps for its backward pass, weights and buffers left out; each storage counts once.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> saved_bytes(layer, torch.ones(3, 4))  # its input
        48
    """
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with _untouched(model), torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = model(*example if isinstance(example, tuple) else (example,))
        parts = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if parts:
            torch.autograd.grad([part.sum() for part in parts], trained, allow_unused=True)
    return sum(found.values())


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Batch norm's statistics and the random generator afterwards as before."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.random.fork_rng():
        try:
            yield
        finally:
            with torch.no_grad():
                for name, buffer in model.named_buffers():
                    buffer.copy_(before[name])
