"""How many examples each property test tries: 10,000 in all, 100,000 with REGROW_DEEP=1, or REGROW_EXAMPLES in all."""

import os

from hypothesis import settings

SHARES = {
    "whole updates against the oracle": 2600,
    "variants against the oracle": 1500,
    "sequences of updates": 1800,
    "other methods' updates": 1000,
    "allocation": 600,
    "order of layers": 400,
    "selection": 700,
    "distribution": 600,
    "schedule": 200,
    "budgets in compute": 400,
    "updates with budgets in compute": 200,
}
TOTAL = int(os.environ.get("REGROW_EXAMPLES", "100000" if os.environ.get("REGROW_DEEP") == "1" else "10000"))


def examples(what):
    """Settings for one property test."""
    return settings(max_examples=max(1, SHARES[what] * TOTAL // sum(SHARES.values())), deadline=None)
