"""Means, standard errors, intervals, and the tests of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

Z95 = 1.96


@dataclass(frozen=True)
class Summary:
    """Mean and standard error of n values; ``se`` is None for a single one.

    Example:
        >>> s = summarise([1.0, 2.0, 3.0])
        >>> s.n, s.mean, round(s.se, 4)
        (3, 2.0, 0.5774)
    """

    n: int
    mean: float
    se: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """mean +- 1.96 SE, the paper's 95% interval."""
        return None if self.se is None else (self.mean - Z95 * self.se, self.mean + Z95 * self.se)


def summarise(values: Sequence[float]) -> Summary:
    """Mean, and SE = s / sqrt(n) with s from n - 1."""
    if not values:
        raise ValueError("no values to summarise")
    array = np.asarray(values, dtype=float)
    se = float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else None
    return Summary(len(array), float(array.mean()), se)


def difference_in_se(ours: Summary, mean: float, se: float | None) -> float | None:
    """(ours - theirs) / sqrt(SE_ours^2 + SE_theirs^2); None where no spread is known."""
    spread = math.hypot(ours.se or 0.0, se or 0.0)
    return (ours.mean - mean) / spread if spread > 0 else None


def intervals_overlap(a: Summary, b: Summary) -> bool:
    """The paper's criterion for equal performance: |a - b| <= 1.96 (SE_a + SE_b)."""
    return abs(a.mean - b.mean) <= Z95 * ((a.se or 0.0) + (b.se or 0.0))


def paired_test(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """t and p of a paired t-test, two-sided; p = 1 where all differences are zero."""
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    if np.allclose(differences, 0):
        return 0.0, 1.0
    found = stats.ttest_rel(a, b)
    return float(found.statistic), float(found.pvalue)


def kruskal_wallis(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """H, corrected for ties, and p from chi-square with one degree of freedom."""
    found = stats.kruskal(first, second)
    return float(found.statistic), float(found.pvalue)


def sensitivity_test(
    sparse: dict[str, dict[float, float]],
    dense: dict[str, dict[float, float]],
    anchor: float = 0.9,
    leave_out: Sequence[float] = (0.99,),
) -> tuple[float, float, int]:
    """Is sparse training more sensitive to momentum than dense training? Wilcoxon signed-rank over (network, momentum) pairs.

    Deviations are taken from the error at ``anchor``; zero differences are dropped.

    Returns:
        W, p by the normal approximation, and the number of pairs used.
    """
    pairs = []
    for network in sparse:
        for value in sparse[network]:
            if value in leave_out:
                continue
            deviations = (table[network][value] - table[network][anchor] for table in (sparse, dense))
            pairs.append(tuple(deviations))
    differences = np.array([a - b for a, b in pairs])
    differences = differences[differences != 0]
    found = stats.wilcoxon(differences, method="approx", correction=False)
    return float(found.statistic), float(found.pvalue), len(differences)
