"""Operators called with anything, 250 calls to a process; a crash is named by its call."""

import time

from tests.misuse.child import python

GOAL = {"calls": 5500}
ZERO = ("crashes",)
BATCH = 250


def run(deadline, first):
    """Calls first, first + 1, ...; past a crash the next batch begins behind it."""
    counts = {"calls": 0, "refused": 0, "crashes": 0}
    while time.monotonic() < deadline:
        begin = first + counts["calls"]
        done = python("-m", "tests.misuse.operators", str(begin), str(BATCH), timeout=600)
        last = done.stdout.splitlines()[-1] if done.stdout else str(begin)
        if last.startswith("done"):
            counts["calls"] += BATCH
            counts["refused"] += int(last.split()[3])
        else:
            print(
                f"operators: call {last} ended its process ({done.returncode}): python -m tests.misuse.operators {last} 1"
            )
            counts["calls"] += int(last) - begin + 1
            counts["crashes"] += 1
    return counts
