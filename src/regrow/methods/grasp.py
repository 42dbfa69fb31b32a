"""GraSP: keep the connections whose removal would hurt gradient flow most."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.methods.method import Method
from regrow.methods.saliency import averaged, gradients
from regrow.topology.initial import Setup, globally_largest


def method() -> Method:
    r"""Gradient signal preservation (Wang et al. 2020).

        score = -w * (H g),  g = dL/dw;   remove the largest scores of the whole network, keep the K lowest

    The authors take the loss of logits / 200 on a class-balanced batch: put both into ``calibration``.
    """

    def initial(setup: Setup) -> list[Tensor]:
        with torch.enable_grad():
            first = gradients(setup, setup.calibration(), create_graph=True)
            flow = torch.stack([(g.detach() * g).sum() for g in first]).sum()
            curved = gradients(setup, flow)
        keep = averaged(setup, [layer.weight * hg for layer, hg in zip(setup.layers, curved, strict=True)])
        return globally_largest(setup, keep, setup.total)

    return Method(
        name="grasp",
        paper="Wang et al.",
        year=2020,
        summary="keep the largest w * (H g) of one batch before training",
        initial=initial,
        calibration="loss",
    )
