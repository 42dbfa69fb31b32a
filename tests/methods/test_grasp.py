"""GraSP: -w * Hg against the explicit Hessian."""

import torch
from torch import nn
from torch.func import functional_call

from tests.methods.pretrained import SPARSE, batch, classifier, masks_of, top


def test_scores_agree_with_the_explicit_hessian():
    dtype = torch.float64
    model, (inputs, targets) = classifier(dtype), batch(dtype)
    named = {k: v.detach() for k, v in model.named_parameters()}
    sizes = [named[n].numel() for n in SPARSE]

    def loss(flat):
        parts = {n: part.view_as(named[n]) for n, part in zip(SPARSE, flat.split(sizes), strict=True)}
        return nn.functional.cross_entropy(functional_call(model, {**named, **parts}, (inputs,)), targets)

    flat = torch.cat([named[n].reshape(-1) for n in SPARSE])
    gradient = torch.autograd.functional.jacobian(loss, flat)
    removal = -flat * (torch.autograd.functional.hessian(loss, flat) @ gradient)
    kept = [-part.view_as(named[n]) for n, part in zip(SPARSE, removal.split(sizes), strict=True)]
    _, masks = masks_of("grasp", 0.3, dtype)
    assert all(torch.equal(a, b) for a, b in zip(masks, top(kept, 0.3), strict=True))
