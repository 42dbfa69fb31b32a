"""What pruning at initialisation shares: gradients of the loss with respect to every sparse layer."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.errors import ConfigurationError, NonFiniteError
from regrow.topology.initial import Setup


def gradients(setup: Setup, loss: Tensor, create_graph: bool = False) -> list[Tensor]:
    """d loss / d weight of each layer; zeros for a layer the loss does not reach."""
    if not (isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad):
        raise ConfigurationError(
            f"calibration gave {type(loss).__name__}: it must return the loss as a tensor with its graph"
        )
    parameters = list({id(layer.parameter): layer.parameter for layer in setup.sparse}.values())
    found = torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True)
    by_id = {id(p): g for p, g in zip(parameters, found, strict=True)}
    whole = [by_id[id(layer.parameter)] for layer in setup.sparse]
    return [layer.band(g) for g, layer in zip(whole, setup.sparse, strict=True)]


def averaged(setup: Setup, scores: list[Tensor]) -> list[Tensor]:
    """Mean over ranks of detached float scores, checked to be finite."""
    for layer, score in zip(setup.sparse, scores, strict=True):
        if not bool(torch.isfinite(score).all()):
            raise NonFiniteError(
                f"the calibration batch gives a non-finite score in layer {layer.name}: check inputs and loss"
            )
    return [setup.average(score.detach().float().contiguous()) for score in scores]
