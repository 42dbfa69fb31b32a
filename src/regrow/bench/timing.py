"""Fair timing: candidates interleaved round by round, medians, and the same allocator settings for all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate, measured in turns after one warm-up each."""
    return {name: statistics.median(values) for name, values in samples(candidates, rounds).items()}


def samples(candidates: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every call of each candidate, measured in turns after one warm-up each."""
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            begin = time.perf_counter()
            candidate()
            seconds[name].append(time.perf_counter() - begin)
    return seconds
