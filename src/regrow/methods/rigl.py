"""RigL: regrow where the current gradient is largest."""

from __future__ import annotations

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, floor_fraction
from regrow.topology.schedule import When, cosine


def method(prune_rate: float = 0.3, stop: float = 0.75) -> Method:
    r"""Rigging the lottery (Evci et al. 2020).

    Every dT = 100 steps until T_end = ``stop`` of the run, in place of the weight update of that step:

        k_l = floor(f nnz_l),   f = alpha/2 (1 + cos(pi t / T_end))
        drop the k_l smallest |w|, grow the k_l largest |g| among what is missing then (just dropped included)

    g is the dense gradient of the current batch. New weights start at 0 with zero optimizer state; returned ones keep both.
    ``distribution="uniform"`` with ``scope=Scope(dense=("@first",))`` is the paper's uniform variant.

    Args:
        prune_rate: alpha.
        stop: share of the run after which masks stay.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.within("stop", stop, 0, 1, open_low=True)
    return Method(
        name="rigl",
        paper="Evci et al.",
        year=2020,
        summary="prune small weights, regrow by the current gradient",
        distribution="erk",
        prune=Prune(count=floor_fraction),
        grow=Grow(score.gradient),
        when=When(100, until=stop, phase="instead"),
        rate=cosine(prune_rate, until=stop),
        extra_memory="1 dense gradient per layer in update steps",
    )
