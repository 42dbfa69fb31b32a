"""How many activations are zero: the share of non-zero entries in what each layer receives."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from regrow.uses import evaluation_mode


@torch.no_grad()
def input_densities(model: nn.Module, images: Tensor) -> dict[str, float]:
    """Share of non-zero entries in the input of every convolution and linear layer, on one batch in evaluation mode.

    The mean over calls where a layer is called more than once. The model is left as it was.

    Example:
        >>> model = nn.Sequential(nn.ReLU(), nn.Linear(4, 1))
        >>> input_densities(model, torch.tensor([[-1.0, 2.0, -3.0, -4.0]]))
        {'1': 0.25}
    """
    seen: dict[str, list[float]] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, (_ConvNd, nn.Linear)):

            def note(_: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
                seen.setdefault(name, []).append(int(inputs[0].count_nonzero()) / inputs[0].numel())

            hooks.append(module.register_forward_pre_hook(note))
    try:
        with evaluation_mode(model):
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: sum(values) / len(values) for name, values in seen.items()}
