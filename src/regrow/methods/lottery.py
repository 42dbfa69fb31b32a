"""Lottery tickets: rounds of magnitude pruning with rewinding."""

from __future__ import annotations

from typing import Literal

from regrow.methods import options
from regrow.methods.method import Method, Rounds
from regrow.topology.initial import everything
from regrow.topology.prune import Prune, down_to_floor


def method(keep: float = 0.8, rewind_step: int = 0, select: Literal["layer", "global"] = "layer") -> Method:
    r"""The lottery ticket hypothesis (Frankle & Carbin 2019), with late rewinding.

        train m * w_k to the end -> w_T;  keep the ``keep`` largest |w_T| of the present;  reset them to w_k;  repeat: density keep^round

    Call ``handle.rewind()`` after each round of training; it returns False once the target density is reached.

    Args:
        keep: share of the present weights that survives a round.
        rewind_step: k; 0 rewinds to the initial weights.
        select: per layer, or over the whole network (deep nets).
    """
    options.within("keep", keep, 0, 1, open_low=True, open_high=True)
    options.at_least("rewind_step", rewind_step, 0)
    options.one_of("select", select, ("layer", "global"))
    return Method(
        name="lottery-ticket",
        paper="Frankle & Carbin",
        year=2019,
        summary="rounds of training and pruning, survivors rewound to early values",
        initial=everything,
        prune=Prune(count=down_to_floor, select=select),
        rounds=Rounds(keep=keep, rewind=True, rewind_step=rewind_step),
        density=lambda target: lambda progress: 1.0,
        budget="schedule",
        extra_memory="1 dense copy of the model (rewind weights)",
    )
