"""What rows of a race say: per setting its error, time and work, the time to each error level, and who is beaten by nobody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LEVELS = (80, 70, 60, 50, 40, 35, 30, 25, 20, 17.5, 15, 12.5, 10, 8, 6, 5, 4, 3, 2.5, 2, 1.5, 1, 0.75)
MOST_LEVELS = 5

Row = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """One setting over its seeds; ``error`` is of the test set where runs are finished; ``as_run``: seconds where the clock has others."""

    setting: str
    seeds: int
    diverged: int
    step: int
    error: float | None
    spread: float | None
    seconds: float
    as_run: float | None
    macs: float
    macs_share: float | None
    density: float
    tested: bool
    reached: dict[float, float]


def standings(rows: Sequence[Row], results: dict[tuple[str, int], float]) -> list[Standing]:
    """A line per setting, in the order they first ran."""
    names = list(dict.fromkeys(row["setting"] for row in rows))
    levels = shown_levels(rows)
    return [_standing(name, [row for row in rows if row["setting"] == name], results, levels) for name in names]


def shown_levels(rows: Sequence[Row]) -> list[float]:
    """The hardest error levels that some run reached after its first row."""
    best = min((row["error"] for row in rows if row["error"] is not None), default=math.inf)
    first = max((row["error"] for row in rows if row["error"] is not None), default=0.0)
    return [level for level in LEVELS if best <= level < first][-MOST_LEVELS:]


def seconds_to(rows: Sequence[Row], level: float) -> float | None:
    """Training seconds of one run until its error was at most ``level`` for the first time.

    Example:
        >>> seconds_to([{"seconds": 1.0, "error": 9.0}, {"seconds": 2.0, "error": 4.0}], 5)
        2.0
    """
    return next((row["seconds"] for row in rows if row["error"] is not None and row["error"] <= level), None)


def unbeaten(lines: Sequence[Standing]) -> list[str]:
    """The Pareto front: settings that no other beats in both error and seconds."""
    known = [line for line in lines if line.error is not None]
    return [
        a.setting
        for a in known
        if not any(_no_worse(b, a) and (b.seconds < a.seconds or b.error < a.error) for b in known)  # type: ignore[operator]
    ]


def _no_worse(a: Standing, b: Standing) -> bool:
    return a.seconds <= b.seconds and a.error is not None and b.error is not None and a.error <= b.error


def _standing(name: str, rows: list[Row], results: dict[tuple[str, int], float], levels: Sequence[float]) -> Standing:
    by_seed: dict[int, list[Row]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append(row)
    last = [own[-1] for own in by_seed.values()]
    tested = all((name, seed) in results for seed in by_seed)
    errors = [results[name, row["seed"]] if tested else row["error"] for row in last if row["error"] is not None]
    reached = {}
    for level in levels:
        times = [seconds_to(own, level) for own in by_seed.values()]
        if all(time is not None for time in times):
            reached[level] = _mean([time for time in times if time is not None])
    shares = [row["macs_share"] for row in last if row["macs_share"] is not None]
    return Standing(
        setting=name,
        seeds=len(last),
        diverged=sum(bool(row.get("diverged")) for row in last),
        step=min(row["step"] for row in last),
        error=_mean(errors) if errors else None,
        spread=_error_of_mean(errors),
        seconds=_mean([row["seconds"] for row in last]),
        as_run=_mean([row["as_run"] for row in last]) if all("as_run" in row for row in last) else None,
        macs=_mean([row["macs"] for row in last]),
        macs_share=_mean(shares) if shares else None,
        density=_mean([row["density"] for row in last]),
        tested=tested,
        reached=reached,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _error_of_mean(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
