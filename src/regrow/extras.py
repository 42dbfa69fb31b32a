"""What a method does to layers around each optimizer step, beside its topology updates: prepare, adjust, perturb."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regrow import randomness
from regrow.methods.method import StepView

if TYPE_CHECKING:
    from regrow.network import SparseNetwork
    from regrow.scope import Layer

Action = Callable[[StepView], None]


def act(
    network: SparseNetwork, action: Action | None, step: int, gradients: bool = False, scale: Tensor | None = None
) -> None:
    """Let a method act on every layer that is not frozen; with ``gradients`` on those that have one.

    ``scale`` is a factor on all gradients that the method shall not see.
    """
    if action is None:
        return
    for index, layer in enumerate(network.layers):
        given = layer.parameter.grad if gradients else None
        if not layer.parameter.requires_grad or (gradients and given is None):
            continue
        grad = None if given is None else layer.band(given)
        if grad is not None and scale is not None:
            grad.div_(scale)
        action(_view(network, index, grad, step))
        if grad is not None and scale is not None:
            grad.mul_(scale)


def _view(network: SparseNetwork, index: int, grad: Tensor | None, step: int) -> StepView:
    layer, settings = network.layers[index], network.settings
    weight, mask, reach, where = _shown(network, layer)
    return StepView(
        index=index,
        weight=weight,
        arrived=grad,
        mask=mask,
        reach=reach,
        lr=float(network.of(layer).group().get("lr", 0.0)),
        memory=network.layer_memory[index],
        rng=lambda *key: randomness.generator(settings.seed, "step", step, *key),
        progress=settings.progress(step),
        interval=settings.clock.interval(step) if settings.clock else 0,
        where=where,
    )


def _shown(network: SparseNetwork, layer: Layer) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Weight, mask, reach, and where these weights are: present ones alone in a run that is or will be stored compact."""
    sparse = network.of(layer)
    weight = layer.band(sparse.trained)
    if network.settings.storage == "dense":
        return weight, network.mask(layer), layer.band(sparse.reached.mask), None
    where = sparse.support.marks.positions
    everyone = torch.ones(len(where), dtype=torch.bool)
    return weight if sparse.is_compact else weight.reshape(-1)[where], everyone, everyone, where
