"""SNFS-ERK: momentum growth without redistribution, as in RigL's comparison tables."""

from __future__ import annotations

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, floor_fraction
from regrow.topology.schedule import When, cosine


def method(prune_rate: float = 0.3, stop: float = 0.75) -> Method:
    r"""SNFS in the reading of Evci et al. 2020: RigL's schedule, growth by |EMA(g)|.

        M <- 0.9 M + 0.1 g (own average of the dense gradient);   drop floor(f nnz_l) smallest |w|, grow the largest |M|

    There is no redistribution between layers, so it is not the full sparse momentum (method ``sparse-momentum``).

    Args:
        prune_rate: alpha of RigL's cosine.
        stop: share of the run after which masks stay.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.within("stop", stop, 0, 1, open_low=True)
    return Method(
        name="snfs-erk",
        paper="Evci et al.",
        year=2020,
        summary="RigL's schedule with growth by smoothed gradients",
        distribution="erk",
        prune=Prune(count=floor_fraction),
        grow=Grow(score.momentum),
        when=When(100, until=stop, phase="instead"),
        rate=cosine(prune_rate, until=stop),
        pure_gradient=True,
        extra_memory="1 dense tensor per layer in growth windows",
    )
