"""MEST: elastic mutation, no dense gradient ever."""

from __future__ import annotations

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology import score
from regrow.topology.grow import Grow
from regrow.topology.prune import Prune, down_to_floor
from regrow.topology.schedule import Curve, When, constant, steps


def method(soft: bool = False, gap: float = 0.2, gradient_weight: float = 0.0) -> Method:
    r"""Memory-economic sparse training (Yuan et al. 2021).

    Every five epochs, with a gap that falls ``gap`` -> gap/2 -> 0 at 56% and 75% of the run (relative to the density d):

        EM:    prune to d (1 - gap), grow to d at random          (constant budget between updates)
        EM&S:  prune to d, grow to d (1 + gap) at random          (``soft``: trains above d until the gap closes)

    Args:
        soft: EM&S instead of EM.
        gap: share of the weights that mutate at first.
        gradient_weight: lambda of the prune score |w| + lambda |g|.
    """
    options.within("gap", gap, 0, 1)
    options.at_least("gradient_weight", gradient_weight, 0)
    share = steps((gap, gap / 2, 0.0), (0.5625, 0.75))

    def lower(density: float) -> Curve:
        return constant(density) if soft else lambda progress: density * (1 - share(progress))

    def upper(density: float) -> Curve:
        return lambda progress: min(1.0, density * (1 + share(progress)))

    return Method(
        name="mest",
        paper="Yuan et al.",
        year=2021,
        summary="prune to a lower bound and regrow at random, with a shrinking gap",
        prune=Prune(score.magnitude_and_gradient(gradient_weight), count=down_to_floor),
        grow=Grow(score.random, just_pruned="zero"),
        when=When("epoch", epochs=5),
        floor=lower,
        density=upper if soft else None,
        budget="schedule" if soft else "constant",
    )
