"""Means, standard errors, intervals, and the tests of the paper."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

Z95 = 1.96
_ENOUGH = 8


@dataclass(frozen=True)
class Summary:
    """Mean and standard error of n values; ``se`` is None for fewer than two, the mean of none is NaN.

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
        return Summary(0, math.nan, None)
    array = np.asarray(values, dtype=float)
    se = float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else None
    return Summary(len(array), float(array.mean()), se)


def difference_in_se(ours: Summary, mean: float, se: float | None) -> float | None:
    """(ours - theirs) / sqrt(SE_ours^2 + SE_theirs^2), theirs 0 where none was published; None for a single run of ours."""
    if ours.se is None:
        return None
    spread = math.hypot(ours.se, se or 0.0)
    return (ours.mean - mean) / spread if spread > 0 else None


def intervals_overlap(a: Summary, b: Summary) -> bool:
    """The paper's criterion for equal performance: |a - b| <= 1.96 (SE_a + SE_b); never met by fewer than two values."""
    return a.se is not None and b.se is not None and abs(a.mean - b.mean) <= Z95 * (a.se + b.se)


def kruskal_wallis(first: Sequence[float] | np.ndarray, second: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """H = 12 / (N (N + 1)) sum_g R_g^2 / n_g - 3 (N + 1), corrected for ties, and p from chi-square with one degree of freedom."""
    found = stats.kruskal(first, second)
    return float(found.statistic), float(found.pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for multiple tests, in the given order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def paired_test(differences: Sequence[float]) -> tuple[float, float]:
    """Two-sided p of differences that should be zero: Student's t, and Wilcoxon's signed ranks (1 where all are zero).

    Example:
        >>> [round(p, 3) for p in paired_test([0.1, 0.2, 0.15, 0.3, 0.05])]
        [0.02, 0.062]
    """
    if not any(differences):
        return 1.0, 1.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue), float(stats.wilcoxon(differences).pvalue)


def student_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's interval of the mean of at least two values.

    Example:
        >>> [round(bound, 3) for bound in student_interval([0.1, 0.2, 0.3])]
        [-0.048, 0.448]
    """
    found = summarise(values)
    half = 0.0 if not found.se else float(stats.t.ppf((1 + level) / 2, found.n - 1)) * found.se
    return found.mean - half, found.mean + half


@dataclass(frozen=True)
class SensitivityTest:
    """Wilcoxon signed-rank test of (deviation sparse, deviation dense) and the checks of its alternatives' assumptions.

    ``equal_variance`` is the p-value of Levene's test; ``normality`` holds those of D'Agostino's, also of log10 of the absolute
    deviations. Below 8 values they are None.
    """

    statistic: float
    p: float
    pairs: int
    equal_variance: float | None
    normality: dict[str, float | None]


def sensitivity_test(
    sparse: Mapping[str, Mapping[float, float]],
    dense: Mapping[str, Mapping[float, float]],
    anchor: float = 0.9,
    leave_out: Sequence[float] = (0.99,),
    absolute: bool = False,
) -> SensitivityTest:
    """Is sparse training more sensitive to momentum than dense training?

    Pairs are (network, momentum) of both tables; deviations are taken from the error at ``anchor``. Wilcoxon's test is two-sided, with
    zero differences dropped and p by the normal approximation.

    Args:
        sparse: network -> momentum -> mean error.
        dense: the same of the dense control.
        anchor: momentum whose error is the origin; it must be there for every network.
        leave_out: momenta that do not count.
        absolute: compare the sizes of the deviations.
    """
    first, second = (_deviations(table, sparse, anchor, leave_out) for table in (sparse, dense))
    if absolute:
        first, second = np.abs(first), np.abs(second)
    # Rounded, so that equal differences of decimal numbers stay equal and share a rank.
    differences = np.round(first - second, 9)
    differences = differences[differences != 0]
    if not len(differences):
        raise ValueError("all deviations of sparse and dense training are equal: there is nothing to rank")
    found = stats.wilcoxon(differences, method="approx", correction=False)
    groups = {"sparse": first, "dense": second}
    logs = {f"log10 {name}": np.log10(np.abs(values[values != 0])) for name, values in groups.items()}
    return SensitivityTest(
        float(found.statistic),
        float(found.pvalue),
        len(differences),
        float(stats.levene(first, second).pvalue) if len(first) >= _ENOUGH else None,
        {name: _normality(values) for name, values in {**groups, **logs}.items()},
    )


def _deviations(
    table: Mapping[str, Mapping[float, float]],
    like: Mapping[str, Mapping[float, float]],
    anchor: float,
    leave_out: Sequence[float],
) -> np.ndarray:
    """Errors minus the error at the anchor, in the order of another table."""
    wanted = [(network, value) for network in like for value in like[network] if value not in leave_out]
    return np.array([table[network][value] - table[network][anchor] for network, value in wanted])


def _normality(values: np.ndarray) -> float | None:
    if len(values) < _ENOUGH:
        return None
    with warnings.catch_warnings():
        # scipy warns below 20 values that p is approximate; so are the paper's checks.
        warnings.simplefilter("ignore")
        return float(stats.normaltest(values).pvalue)
