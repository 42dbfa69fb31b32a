"""DSR: one adaptive threshold for all layers, regrowth by surviving weights."""

from __future__ import annotations

from collections.abc import Sequence

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Threshold
from regrow.topology.redistribute import Redistribute, survivors
from regrow.topology.schedule import When, doubling


def method(
    target: float = 0.1,
    tolerance: float = 0.1,
    threshold: float = 1e-3,
    stop: float = 0.95,
    stages: Sequence[float] = (0.125, 0.4, 0.7),
) -> Method:
    r"""Dynamic sparse reparameterisation (Mostafa & Wang 2019).

    Every N_r steps, a period that doubles at each of the ``stages``, until ``stop``:

        remove every |w| < H;  K_p = number removed
        H <- H/2 if K_p > (1 + delta) N_p;   H <- 2H if K_p < (1 - delta) N_p
        layer l grows K_p * R_l / sum R at random, R_l = its survivors; positions just freed only if nothing else is left

    The authors keep the first convolution, shortcuts and (CIFAR-10) the last layer dense: ``scope="partially-dense-cifar"``.

    Args:
        target: N_p, as a number of weights, or as a share of the present ones if below 1. Published: 600 for LeNet-300-100,
            20,000 for WRN-28-2, 400,000 for ResNet-50.
        tolerance: delta.
        threshold: H at the start.
        stop: share of the run after which masks stay.
        stages: shares of the run at which the period doubles. Published: from 100 steps at epochs 25, 80 and 140 of 200 for WRN-28-2, from
            1000 steps (``update_every=1000``) at 25, 50 and 75 of 100 for ResNet-50.
    """
    options.within("stop", stop, 0, 1, open_low=True)
    options.stages("stages", stages)
    options.within("target", target, 0, float("inf"), open_low=True)
    options.within("tolerance", tolerance, 0, 1)
    options.within("threshold", threshold, 0, float("inf"), open_low=True)
    return Method(
        name="dsr",
        paper="Mostafa & Wang",
        year=2019,
        summary="prune below one adaptive threshold, regrow at random where weights survived",
        prune=Threshold(target, tolerance, threshold),
        redistribute=Redistribute(survivors, overflow="proportional"),
        grow=Grow(score.random, candidates="not-just-pruned"),
        when=When(100, until=stop, stretch=doubling(stages)),
    )
