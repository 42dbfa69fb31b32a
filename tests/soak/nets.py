"""Random conv nets, U-nets and linear nets, sparse against masked in double precision; and single layers against dense."""

import time

from tests.execution.bounds import check_case
from tests.misuse.nets import judged

GOAL = {"nets": 2000, "layers": 2000}
ZERO = ("wrong",)
FIRST = 100_000  # other seeds than those of the tests


def run(deadline, first):
    """One network and one layer in turn."""
    counts = {"nets": 0, "layers": 0, "same": 0, "traced": 0, "wrong": 0}
    while time.monotonic() < deadline:
        seed = FIRST + first + counts["nets"]
        verdict = judged(seed)
        counts[verdict] += 1
        if verdict == "wrong":
            print(f"nets: network {seed} differs: tests.misuse.nets.judged({seed})")
        try:
            check_case(seed)
        except AssertionError as error:
            counts["wrong"] += 1
            print(f"nets: layer {seed} differs: tests.execution.bounds.check_case({seed}): {error}")
        counts["nets"] += 1
        counts["layers"] += 1
    return counts
