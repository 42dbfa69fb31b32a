"""SynFlow: iterative, data-free pruning before training."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.distribution import budget
from regrow.topology.initial import Setup, globally_largest


def method(rounds: int = 100) -> Method:
    r"""Synaptic flow (Tanaka et al. 2020).

        R = 1^T f(1; |w|),  score = |w dR/dw|;  for k = 1..n keep the density^(k/n) largest scores of the whole network

    Works on a float64 copy in eval mode, so that products over many layers neither vanish nor overflow. Pass an example input as
    ``calibration``; only its shape counts.

    Args:
        rounds: n.
    """
    options.at_least("rounds", rounds, 1)

    def initial(setup: Setup) -> list[Tensor]:
        if not setup.calibration.is_floating_point():
            raise ConfigurationError(
                "synflow sends ones through the model: it needs inputs of floating-point numbers, not tokens"
            )
        probe = _absolute_copy(setup.model)
        ones = torch.ones_like(setup.calibration[:1], dtype=torch.float64)
        named = dict(probe.named_parameters())
        weights = [named[layer.parameter_name] for layer in setup.sparse]
        originals = [weight.detach().clone() for weight in weights]
        masks = [torch.ones_like(layer.mask) for layer in setup.layers]
        sizes = [mask.numel() for mask in masks]
        target = setup.total / sum(sizes)
        for k in range(1, rounds + 1):
            scores = _flow(probe, ones, setup, weights)
            scores = [torch.where(mask, score, -1.0) for mask, score in zip(masks, scores, strict=True)]
            kept = setup.total if k == rounds else max(len(sizes), budget(target ** (k / rounds), sizes))
            masks = globally_largest(setup, scores, kept)
            _apply(setup, weights, originals, masks)
        return masks

    return Method(
        name="synflow",
        paper="Tanaka et al.",
        year=2020,
        summary="data-free iterative pruning by synaptic flow before training",
        initial=initial,
        calibration="input",
    )


def _absolute_copy(model: nn.Module) -> nn.Module:
    probe = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        for tensor in (*probe.parameters(), *probe.buffers()):
            if tensor.is_floating_point():
                tensor.abs_()
    return probe


def _flow(probe: nn.Module, ones: Tensor, setup: Setup, weights: Sequence[Tensor]) -> list[Tensor]:
    with torch.enable_grad():
        total = probe(ones).sum()
        found = torch.autograd.grad(total, weights, allow_unused=True, materialize_grads=True)
    products = [(w.detach() * g).abs() for w, g in zip(weights, found, strict=True)]
    return [layer.band(p) for p, layer in zip(products, setup.sparse, strict=True)]


def _apply(setup: Setup, weights: Sequence[Tensor], originals: list[Tensor], masks: list[Tensor]) -> None:
    for layer, weight, original, mask in zip(setup.sparse, weights, originals, masks, strict=True):
        layer.band(weight.data).copy_(layer.band(original) * mask)
