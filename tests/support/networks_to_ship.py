"""Small networks with masks, trained enough that nothing is at its initial value."""

import torch
from torch import nn

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d)


def masks_of(model, density, seed=0):
    """A random mask for the weight of every linear and convolutional layer, by parameter name."""
    generator = torch.Generator().manual_seed(seed)
    weighted = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, WEIGHTED)}
    return {
        name: random_mask(parameter.shape, density, generator)
        for name, parameter in model.named_parameters()
        if name in weighted
    }


def random_mask(shape, density, generator=None):
    """A mask with exactly this share of the positions, rounded."""
    drawn = torch.rand(shape, generator=generator)
    kept = round(density * drawn.numel())
    return torch.zeros(shape, dtype=torch.bool).put_(
        drawn.view(-1).topk(kept).indices, torch.ones(kept, dtype=torch.bool)
    )


@torch.no_grad()
def masked(model, masks):
    """The model with its masks applied."""
    for name, parameter in model.named_parameters():
        if name in masks:
            parameter.mul_(masks[name])
    return model
