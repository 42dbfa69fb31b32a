"""Masks to measure with: uniform random ones, or those of a run; and the work they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from regrow.analysis.flops import kept_macs
from regrow.errors import ConfigurationError
from regrow.marks import count_of
from regrow.models.cost import ModelCost
from regrow.training.stored import checkpoint_in

Masks = dict[str, Tensor]
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
"""Kinds of layers that are measured sparse."""
ATTENTION, FEED_FORWARD = 0.3, 0.1
_FORWARD_AND_TWO_GRADIENTS = 3


@dataclass(frozen=True)
class Chosen:
    """Masks by layer name, where they come from, and their density as it was asked for."""

    masks: Masks
    source: str
    density: float


def uniform(model: nn.Module, density: float) -> Chosen:
    """The same share of random weights in every convolution and linear layer; a convolution that comes first stays dense.

    Behind an embedding no layer is the first, and one that shares the embedding's weight stays dense with it.
    """
    layers = layers_of(model)
    layers = layers if embeds(model) or layers[0][1].dim() == 2 else layers[1:]
    generator = torch.Generator().manual_seed(0)
    masks = {name: torch.rand(weight.shape, generator=generator) < density for name, weight in layers}
    return Chosen(masks, "uniform", density)


def spread(model: nn.Module, density: float | None) -> Chosen:
    """Uniform masks of this density; without one, those of published transformers: attention 30%, feed-forward 10%."""
    if density is not None:
        return uniform(model, density)
    generator = torch.Generator().manual_seed(0)
    masks = {
        name: torch.rand(weight.shape, generator=generator) < (ATTENTION if "attention" in name else FEED_FORWARD)
        for name, weight in layers_of(model)
    }
    present = sum(count_of(mask) for mask in masks.values()) / sum(mask.numel() for mask in masks.values())
    return Chosen(masks, f"attention {ATTENTION:.0%}, feed-forward {FEED_FORWARD:.0%}", present)


def layers_of(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Names and weights of the layers that may be measured sparse: not those that share an embedding's weight."""
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    found = ((name, module.weight) for name, module in model.named_modules() if isinstance(module, LAYERS))
    return [(name, weight) for name, weight in found if id(weight) not in tables]


def embeds(model: nn.Module) -> bool:
    """Whether a model takes tokens."""
    return any(isinstance(module, nn.Embedding) for module in model.modules())


def of_run(path: Path, model: nn.Module) -> Chosen:
    """The masks in a checkpoint: the newest of a run's folder, or one that is named itself."""
    found = checkpoint_in(path)
    modules = dict(model.named_modules())
    masks = {}
    for name, mask in found.masks.items():
        layer = name.removesuffix(".weight")
        weight = getattr(modules.get(layer), "weight", None)
        if weight is None or weight.shape != mask.shape:
            raise ConfigurationError(
                f"{path} has a mask for {name}, which the model lacks in that shape: choose its --model"
            )
        masks[layer] = mask
    present = sum(count_of(mask) for mask in masks.values())
    return Chosen(masks, f"{path.name} at step {found.step}", present / sum(mask.numel() for mask in masks.values()))


def bound(table: ModelCost, masks: Mapping[str, Tensor]) -> float:
    """Dense over kept MACs: the speed-up if time were proportional to them."""
    return sum(layer.macs or 0 for layer in table.sparsifiable) / sum(kept_macs(table, _densities(masks)).values())


def useful_flops(table: ModelCost, masks: Mapping[str, Tensor]) -> float:
    """Operations of a training step for one sample: forward and two gradients; the first layer has no input gradient."""
    kept = list(kept_macs(table, _densities(masks)).values())
    return 2 * (_FORWARD_AND_TWO_GRADIENTS * sum(kept) - kept[0])


def _densities(masks: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: count_of(mask) / mask.numel() for name, mask in masks.items()}
