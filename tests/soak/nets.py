"""Random conv nets, U-nets and linear nets, sparse against masked in double precision, compact against dense storage; and single layers."""

import time

from tests.execution.bounds import check_case
from tests.misuse.nets import compact_agrees, judged

GOAL = {"nets": 2000, "layers": 2000, "compact": 500}
ZERO = ("wrong",)
FIRST = 100_000  # other seeds than those of the tests


def run(deadline, first):
    """One network and one layer in turn."""
    counts = {"nets": 0, "layers": 0, "compact": 0, "same": 0, "traced": 0, "wrong": 0}
    while time.monotonic() < deadline:
        seed = FIRST + first + counts["nets"]
        try:
            verdict = judged(seed)
            counts[verdict] += 1
            if verdict == "wrong":
                print(f"nets: network {seed} differs: tests.misuse.nets.judged({seed})", flush=True)
        except Exception as error:
            failed(counts, f"network {seed}: tests.misuse.nets.judged({seed}): {error!r}")
        try:
            check_case(seed)
        except Exception as error:
            failed(counts, f"layer {seed}: tests.execution.bounds.check_case({seed}): {error!r}")
        try:
            stored = compact_agrees(seed)
            counts["compact"] += stored is not None
            if stored is False:
                failed(counts, f"network {seed} in compact storage: tests.misuse.nets.compact_agrees({seed})")
        except Exception as error:
            failed(counts, f"network {seed} in compact storage: {error!r}")
        counts["nets"] += 1
        counts["layers"] += 1
    return counts


def failed(counts, what):
    """One that differs, or could not be computed at all: the search goes on."""
    counts["wrong"] += 1
    print(f"nets: {what}", flush=True)
