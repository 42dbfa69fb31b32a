"""Fair timing: candidates interleaved round by round, medians, and the same allocator settings for all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def medians(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate, measured in turns after one warm-up each."""
    return {name: statistics.median(values) for name, values in samples(candidates, rounds).items()}


def samples(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every call of each candidate, measured in turns after one warm-up each.

    A candidate that computes elsewhere and measures itself returns its seconds as a float.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            answer = candidate()
            taken = time.perf_counter() - begin
            seconds[name].append(answer if isinstance(answer, float) else taken)
    return seconds


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile.

    Example:
        >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
        (2.0, 4.0)
    """
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
