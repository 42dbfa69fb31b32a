"""ITOP: fewer, later and longer exploration, so that most weights are tried once."""

from __future__ import annotations

from typing import Literal

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, floor_fraction
from regrow.topology.schedule import When, cosine


def method(
    prune_rate: float = 0.5, growth: Literal["gradient", "random"] = "gradient", fresh_first: bool = False
) -> Method:
    r"""In-time over-parameterisation (Liu et al. 2021).

    RigL (``growth="gradient"``, every 4000 steps) or SET (``"random"``, every 1500) with a cosine prune rate to the very end of
    training, so that R_s = |union of masks over time| / n, the journal's ``ever_active``, becomes high.

    Args:
        prune_rate: rate at the start.
        growth: ``gradient`` or ``random``.
        fresh_first: grow among never-active positions first.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.one_of("growth", growth, ("gradient", "random"))
    by_gradient = growth == "gradient"
    return Method(
        name="itop",
        paper="Liu et al.",
        year=2021,
        summary="rare, large updates to the end of training, to try most weights once",
        distribution="erk",
        prune=Prune(count=floor_fraction),
        grow=Grow(
            score.gradient if by_gradient else score.random,
            candidates="never-active-first" if fresh_first else "missing",
        ),
        when=When(4000 if by_gradient else 1500),
        rate=cosine(prune_rate),
        extra_memory="1 dense gradient per layer in update steps" if by_gradient else "none",
    )
