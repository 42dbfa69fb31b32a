"""SET: prune the weights closest to zero, regrow at random."""

from __future__ import annotations

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune
from regrow.topology.schedule import When, constant


def method(prune_rate: float = 0.3) -> Method:
    r"""Sparse evolutionary training (Mocanu et al. 2018).

    Erdos-Renyi masks, density_l ~ (n_in + n_out) / (n_in n_out), with the kernel in the sums for convolutions. Every epoch and per layer:

        remove floor(zeta * #positive) smallest positive and floor(zeta * #negative) largest negative weights, and all zeros between
        grow as many at uniformly random free positions, from value 0

    The authors keep the output layer dense: ``scope=Scope(dense=("@last",))``.

    Args:
        prune_rate: zeta, constant.
    """
    options.within("prune_rate", prune_rate, 0, 1, open_high=True)
    return Method(
        name="set",
        paper="Mocanu et al.",
        year=2018,
        summary="prune the smallest weights of each sign, regrow at random",
        distribution="erk",
        prune=Prune(select="sign"),
        grow=Grow(score.random),
        when=When("epoch"),
        rate=constant(prune_rate),
        rate_needs_steps=False,
    )
