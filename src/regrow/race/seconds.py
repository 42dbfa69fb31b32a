"""Seconds of a run by the clock, in place of those as run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from regrow.race.standing import Row

Reading = dict[str, Any]


def clocked(rows: Sequence[Row], readings: Sequence[Reading]) -> list[Row]:
    """Rows with the clock's seconds in place of those as run, which stay as ``as_run``; rows of entries without readings are left out.

    Example:
        >>> row = {"setting": "dense", "seed": 0, "step": 4, "seconds": 9.0}
        >>> reading = {"setting": "dense", "seed": 0, "step": 0, "plain": 0.5, "collecting": 0.5, "update": 0.0}
        >>> clocked([row], [reading])
        [{'setting': 'dense', 'seed': 0, 'step': 4, 'seconds': 2.0, 'as_run': 9.0}]
    """
    found: list[Row] = []
    last: dict[tuple[str, int], Row] = {}
    for row in rows:
        who = row["setting"], row["seed"]
        own = [r for r in readings if (r["setting"], r["seed"]) == who]
        if not own:
            continue
        before = last.get(who, {"step": 0, "seconds": 0.0})
        new = {**row, "seconds": before["seconds"] + _stretch(before, row, own), "as_run": row["seconds"]}
        found.append(new)
        last[who] = new
    return found


def _stretch(before: Row, row: Row, readings: Sequence[Reading]) -> float:
    """Seconds from one row to the next, all of it at the masks of its beginning."""
    at = max((r["step"] for r in readings if r["step"] <= before["step"]), default=min(r["step"] for r in readings))
    own = [r for r in readings if r["step"] == at]
    plain, collecting, update = (statistics.median(r[kind] for r in own) for kind in ("plain", "collecting", "update"))
    steps, collected, updates = (row.get(key, 0) - before.get(key, 0) for key in ("step", "collected", "updates"))
    return (steps - collected) * plain + collected * collecting + updates * update
