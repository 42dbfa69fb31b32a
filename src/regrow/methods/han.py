"""Han's train-prune-retrain."""

from __future__ import annotations

import torch
from torch import Tensor

from regrow.methods import options
from regrow.methods.method import Method, Rounds
from regrow.topology.initial import everything
from regrow.topology.prune import Prune, down_to_floor
from regrow.topology.score import per_weight
from regrow.topology.view import LayerView


def method(keep: float = 0.5) -> Method:
    r"""Learning both weights and connections (Han et al. 2015).

    Train dense, then per round remove |w| < q * std(layer) and retrain the survivors from their values. One q serves all layers
    and is solved so that the round's budget is exact; call ``handle.rewind()`` after each round of training:

        while True:
            train(...)                      # the authors retrain with a tenth of the learning rate
            if not handle.rewind(): break

    Args:
        keep: share of the present weights that survives a round.
    """
    options.within("keep", keep, 0, 1, open_low=True, open_high=True)
    return Method(
        name="han",
        paper="Han et al.",
        year=2015,
        summary="rounds of training and pruning, survivors keep their values",
        initial=everything,
        prune=Prune(score=_relative_magnitude, count=down_to_floor, select="global"),
        rounds=Rounds(keep=keep, rewind=False),
        density=lambda target: lambda progress: 1.0,
        budget="schedule",
    )


@per_weight
def _relative_magnitude(layer: LayerView) -> Tensor:
    """|w| / std of the layer's present weights."""
    present = layer.weight[layer.mask].float()
    spread = present.std() if present.numel() > 1 else torch.ones(())
    return layer.weight.abs().float() / spread.clamp_min(1e-30)
