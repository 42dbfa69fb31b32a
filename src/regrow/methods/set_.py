"""SET: prune the weights closest to zero, regrow at random."""

from __future__ import annotations

from collections.abc import Sequence

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune
from regrow.topology.schedule import When, constant, doubling


def method(prune_rate: float = 0.3, by_sign: bool = True, stop: float = 1.0, stages: Sequence[float] = ()) -> Method:
    r"""Sparse evolutionary training (Mocanu et al. 2018).

    Erdos-Renyi masks, density_l ~ (n_in + n_out) / (n_in n_out), with the kernel in the sums for convolutions. Every epoch and per layer:

        remove floor(zeta * #positive) smallest positive and floor(zeta * #negative) largest negative weights, and all zeros between
        grow as many at uniformly random free positions, from value 0

    The authors keep the output layer dense: ``scope=Scope(dense=("@last",))``.

    Args:
        prune_rate: zeta, constant.
        by_sign: each sign loses its share, as the authors have it; otherwise each layer loses ceil(zeta nnz_l) of the smallest |w|.
        stop: share of the run after which masks stay.
        stages: shares of the run at which the period doubles. The runs that DSR's authors compare with have ``by_sign=False`` and their
            own method's periods, stages and stop.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    options.within("stop", stop, 0, 1, open_low=True)
    options.stages("stages", stages)
    return Method(
        name="set",
        paper="Mocanu et al.",
        year=2018,
        summary="prune the smallest weights of each sign, regrow at random",
        distribution="erk",
        prune=Prune(select="sign" if by_sign else "layer"),
        grow=Grow(score.random, just_pruned="zero"),
        when=When("epoch", until=stop, stretch=doubling(stages)),
        rate=constant(prune_rate),
        rate_needs_steps=stop < 1 or bool(stages),
    )
