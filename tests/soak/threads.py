"""Several Python threads use one model: four infer, or one trains and three infer; a process each."""

import time

from tests.misuse.child import python

GOAL = {"processes": 100}
ZERO = ("crashes", "wrong")


def run(deadline, first):
    """Processes first, first + 1, ...: even ones infer, odd ones train."""
    counts = {"processes": 0, "crashes": 0, "wrong": 0}
    while time.monotonic() < deadline:
        seed = first + counts["processes"]
        kind = ("infer", "train")[seed % 2]
        done = python("-m", "tests.misuse.threads", kind, str(seed // 2))
        counts["processes"] += 1
        if done.returncode:
            counts["crashes" if done.returncode < 0 else "wrong"] += 1
            print(
                f"threads: python -m tests.misuse.threads {kind} {seed // 2} ({done.returncode}): {done.stderr[-500:]}"
            )
    return counts
