"""Whole runs against simulations written from the papers, and native steps against plain torch."""

import time

from tests.support.simulations import compare, step_difference

GOAL = {"cases": 1_000}
ZERO = ("other masks", "other weights", "other steps")
_CLOSE = 1e-9


def run(deadline, first):
    """Cases from number ``first`` on until the deadline, at least one; each of them four runs and one optimizer."""
    counts = dict.fromkeys((*GOAL, *ZERO), 0)
    while not counts["cases"] or time.monotonic() < deadline:
        number = first + counts["cases"]
        for method in ("sparse-momentum", "rigl"):
            for execution in ("masked", "sparse"):
                difference = compare(method, number, execution)
                counts["other masks"] += difference is None
                counts["other weights"] += difference is not None and difference > _CLOSE
        counts["other steps"] += step_difference(number) > _CLOSE
        counts["cases"] += 1
    return counts
