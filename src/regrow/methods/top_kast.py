"""Top-KAST: forward with the top D of the weights, backward with the top D + M."""

from __future__ import annotations

import torch

from regrow.methods import options
from regrow.methods.method import Method, StepView
from regrow.topology.cycle import Change, to_masks
from regrow.topology.initial import by_magnitude
from regrow.topology.schedule import When
from regrow.topology.score import magnitude
from regrow.topology.select import largest
from regrow.topology.view import Update
from regrow.weighting import Weighting


def method(exploration: float = 0.3, penalty: float = 1e-4) -> Method:
    r"""Top-K always sparse training (Jayakumar et al. 2020).

    Dense theta is kept beside the model. Per layer A = top-D of |theta|, B = top-(D + M) of |theta|:

        forward uses theta on A, zero elsewhere;  the gradient there updates theta on B;  others rest
        exploration loss  penalty/2 * (sum_A theta^2 + sum_{B - A} theta^2 / D)

    Sets are refreshed every 100 steps; ``update_every=1`` refreshes them in each. Leave the optimizer's weight decay at 0: the
    exploration loss takes its place.

    Args:
        exploration: M, additional share of weights that receive gradients.
        penalty: weight of the exploration loss.
    """
    options.within("exploration", exploration, 0, 1)
    options.at_least("penalty", penalty, 0)

    def widest(update: Update) -> list:
        return [
            largest(magnitude(v), _wider(v.nnz, v.numel, exploration), torch.ones_like(v.mask)) for v in update.layers
        ]

    def explore(layer: StepView) -> None:
        density = float(layer.mask.float().mean())
        strength = layer.mask + (layer.reach & ~layer.mask) / density
        layer.grad.add_(layer.weight * strength, alpha=penalty)

    return Method(
        name="top-kast",
        paper="Jayakumar et al.",
        year=2020,
        summary="forward with the largest weights, backward with a larger set",
        initial=by_magnitude,
        weighting=Weighting(reach=widest),
        adjust=explore,
        rewire=_largest_theta,
        when=When(100),
        rate_needs_steps=False,
        extra_memory="1 dense tensor per layer (theta), 1 byte per weight (backward set)",
    )


def _wider(nnz: int, numel: int, exploration: float) -> int:
    return min(numel, nnz + round(exploration * numel))


def _largest_theta(update: Update) -> Change:
    return to_masks(update, [largest(magnitude(v), v.nnz, torch.ones_like(v.mask)) for v in update.layers])
