"""Dense: the baseline every other method is compared with."""

from __future__ import annotations

import math

from regrow.methods.method import Method
from regrow.topology.initial import everything


def method() -> Method:
    """All weights, all the time: m = 1."""
    return Method(
        name="dense",
        paper="control",
        year=2018,
        summary="all weights present: the baseline",
        initial=everything,
        fixed_counts=lambda layers: [math.prod(layer.shape) for layer in layers],
        own_density=1.0,
    )
