"""N:M sparsity with the sparse-refined straight-through estimator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from regrow.errors import ConfigurationError
from regrow.methods import options
from regrow.methods.method import Method, StepView
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import Setup
from regrow.topology.schedule import When
from regrow.topology.view import LayerView, Update
from regrow.weighting import Weighting


def method(n: int = 2, m: int = 4, decay: float = 2e-4) -> Method:
    r"""Learning N:M sparse networks with SR-STE (Zhou et al. 2021).

    In every group of m consecutive weights along the input channels keep the n largest |theta|; forward uses the masked weights,
    the gradient there goes straight through to all of theta, and what is masked decays:

        grad_theta = grad_masked + lambda (1 - mask) theta

    A last group of r < m weights keeps ceil(n r / m) of them.

    Args:
        n, m: how many of how many are kept.
        decay: lambda.
    """
    options.at_least("decay", decay, 0)
    if not (isinstance(n, Integral) and isinstance(m, Integral) and 0 < n <= m):
        raise ConfigurationError(f"n:m needs whole numbers 0 < n <= m, got {n}:{m}")

    def refine(layer: StepView) -> None:
        layer.grad.add_(layer.weight * ~layer.mask, alpha=decay)

    def first(setup: Setup) -> list[Tensor]:
        return [_mask(layer, n, m) for layer in setup.layers]

    def again(update: Update) -> Change:
        return to_masks(update, [_mask(layer, n, m) for layer in update.layers])

    def counts(layers: Sequence[Any]) -> list[int]:
        return [_count(tuple(layer.shape), layer.output_dim, n, m) for layer in layers]

    return Method(
        name="sr-ste",
        paper="Zhou et al.",
        year=2021,
        summary="the n largest of every m weights, straight-through gradients",
        initial=first,
        fixed_counts=counts,
        own_density=n / m,
        weighting=Weighting(),
        adjust=refine,
        rewire=again,
        when=When(1, journal_every=100),
        rate_needs_steps=False,
        extra_memory="1 dense tensor per layer (theta)",
    )


def _mask(layer: LayerView, n: int, m: int) -> Tensor:
    """Keep the n largest of every m along the input dimension, ties to the lower index."""
    moved = layer.weight.movedim(layer.output_dim, 0)
    channels_last = moved.movedim(1, -1) if moved.ndim > 1 else moved
    rows = channels_last.abs().float().reshape(-1, channels_last.shape[-1])
    width = rows.shape[1]
    padded = torch.nn.functional.pad(rows, (0, -width % m), value=-1.0).view(rows.shape[0], -1, m)
    rank = padded.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1, stable=True)
    keep = torch.full((padded.shape[1], 1), n, device=rows.device)
    keep[-1] = math.ceil(n * ((width - 1) % m + 1) / m)
    kept = (rank < keep).view(rows.shape[0], -1)[:, :width].reshape(channels_last.shape)
    back = kept.movedim(-1, 1) if moved.ndim > 1 else kept
    return back.movedim(0, layer.output_dim).contiguous()


def _count(shape: tuple[int, ...], output_dim: int, n: int, m: int) -> int:
    width = shape[1 - output_dim] if len(shape) > 1 else shape[0]
    groups, rest = divmod(width, m)
    return math.prod(shape) // width * (groups * n + math.ceil(n * rest / m))
