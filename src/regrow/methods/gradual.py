"""Gradual magnitude pruning: from dense to sparse along a cubic."""

from __future__ import annotations

from typing import Literal

from regrow.methods import options
from regrow.methods.method import Method
from regrow.topology.initial import everything
from regrow.topology.prune import Prune, down_to_floor
from regrow.topology.schedule import When, cubic


def method(begin: float = 0.2, end: float = 0.75, select: Literal["layer", "global"] = "layer") -> Method:
    r"""To prune, or not to prune (Zhu & Gupta 2018).

        d_t = d_f + (1 - d_f)(1 - (t - t_0)/(t_1 - t_0))^3,  keep the d_t n_i largest |w| of each layer; masks only lose entries

    Args:
        begin, end: t_0 and t_1 as shares of the run.
        select: per layer or over the whole network.
    """
    options.ordered("begin", begin, "end", end)
    options.one_of("select", select, ("layer", "global"))
    return Method(
        name="gradual-pruning",
        paper="Zhu & Gupta",
        year=2018,
        summary="dense to sparse: prune small weights along a cubic schedule",
        initial=everything,
        prune=Prune(count=down_to_floor, select=select),
        when=When("epoch"),
        density=lambda target: cubic(1.0, target, begin, end),
        budget="schedule",
    )
