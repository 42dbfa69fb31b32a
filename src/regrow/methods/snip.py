"""SNIP: keep the connections the loss is most sensitive to, once, before training."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from regrow.methods.method import Method
from regrow.methods.saliency import averaged, gradients
from regrow.topology.initial import Setup, globally_largest
from regrow.uses import evaluation_mode


def method(reinitialise: bool = False, inference: bool = True) -> Method:
    r"""Single-shot network pruning (Lee et al. 2019).

        s_j = |w_j dL/dw_j| / sum_k |w_k dL/dw_k|,  keep the K largest of the whole network, train those

    Pass ``calibration=lambda: loss_function(model(inputs), targets)`` with one training batch. Every layer keeps at least one weight.

    Args:
        reinitialise: train from fresh weights after scoring, as the authors do: each layer's own in random order, which is a new draw
            by whatever rule the model has for independent weights.
        inference: batch norm and dropout act as in inference while the loss is computed, as the authors have it; otherwise as the model
            is, and running statistics move.
    """

    def initial(setup: Setup) -> list[Tensor]:
        with torch.enable_grad(), evaluation_mode(setup.model) if inference else nullcontext():
            found = gradients(setup, setup.calibration())
        products = averaged(setup, [g * layer.weight for g, layer in zip(found, setup.layers, strict=True)])
        if reinitialise:
            _shuffle(setup)
        return globally_largest(setup, [p.abs() for p in products], setup.total)

    return Method(
        name="snip",
        paper="Lee et al.",
        year=2019,
        summary="keep the largest |w g| of one batch before training",
        initial=initial,
        calibration="loss",
    )


@torch.no_grad()
def _shuffle(setup: Setup) -> None:
    for layer in setup.layers:
        order = layer.random("reinitialise").flatten().argsort()
        layer.weight.copy_(layer.weight.flatten()[order].view(layer.weight.shape))
