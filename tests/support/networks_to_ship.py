"""Small networks with masks, trained enough that nothing is at its initial value."""

import torch
from torch import nn

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d)


def masks_of(model, density, seed=0):
    """A random mask for the weight of every linear and convolutional layer, by parameter name."""
    generator = torch.Generator().manual_seed(seed)
    weighted = {f"{name}.weight".lstrip(".") for name, module in model.named_modules() if isinstance(module, WEIGHTED)}
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


@torch.no_grad()
def shaken(model, seed=0):
    """The model with norms and biases as after training: nothing at zero or one."""
    generator = torch.Generator().manual_seed(seed)

    def draw(tensor, low, high):
        tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low)

    for module in model.modules():
        if getattr(module, "running_mean", None) is not None:
            draw(module.running_mean, -0.3, 0.3)
            draw(module.running_var, 0.5, 2.0)
            if module.weight is not None:
                draw(module.weight, 0.5, 1.5)
                draw(module.bias, -0.4, 0.4)
        elif isinstance(module, nn.LayerNorm):
            draw(module.weight, 0.5, 1.5)
            draw(module.bias, -0.4, 0.4)
        elif isinstance(module, WEIGHTED) and module.bias is not None:
            draw(module.bias, -0.4, 0.4)
    return model.eval()


def difference(a, b):
    """The largest difference, relative to the largest value."""
    a, b = a.detach(), b.detach()
    return float((a - b).abs().max() / a.abs().max())
