"""Statistics against the numbers that the paper and its stored data publish."""

import math

import numpy as np
import pytest
from scipy import stats

from regrow.analysis.statistics import (
    Summary,
    difference_in_se,
    holm,
    intervals_overlap,
    kruskal_wallis,
    sensitivity_test,
    summarise,
)
from regrow.experiments.targets import CIFAR_SNIP, DENSE_EQUIVALENCE, MNIST_METHODS, MOMENTUM_SENSITIVITY, WRN28

# Single runs of DSR's authors on WRN-28-2 at 10 to 50% weights, and of DSR on LeNet-300-100: accuracy in percent.
WRN28_RUNS = {
    "dsr": {
        10: (93.74, 93.63, 93.68, 93.29, 93.60),
        20: (94.25, 94.47, 94.30, 94.50, 94.47),
        30: (94.52, 94.45, 94.49, 94.65, 94.73),
        40: (94.48, 94.76, 94.63, 94.76, 94.69),
        50: (94.58, 94.84, 94.81, 94.71, 94.69),
    },
    "set": {
        10: (93.46, 93.31, 93.12, 93.23, 93.27),
        20: (94.28, 94.24, 94.01, 94.30, 94.41),
        30: (94.37, 94.65, 94.53, 94.28, 94.15),
        40: (94.66, 94.31, 94.57, 94.54, 94.66),
        50: (94.74, 94.74, 94.87, 94.63, 94.81),
    },
    "deep-r": {
        10: (91.25, 91.35, 91.38, 91.49, 91.58),
        20: (92.48, 92.42, 92.36, 92.51, 92.05),
        30: (92.64, 92.58, 92.15, 92.47, 92.68),
        40: (92.76, 92.68, 92.88, 92.79, 92.88),
        50: (93.03, 92.60, 93.02, 92.94, 93.01),
    },
}
LENET_DSR_RUNS = {
    1: (97.73, 97.71, 97.80, 97.77, 97.76),
    2: (98.27, 98.27, 98.11, 98.13, 97.92),
    3: (98.26, 98.17, 98.26, 98.17, 98.16),
    4: (98.29, 98.19, 98.25, 98.25, 98.16),
    5: (98.20, 98.26, 98.34, 98.38, 98.40),
    10: (98.35, 98.53, 98.51, 98.32, 98.51),
}
SPARSE, DENSE = (
    {network: {m: pair[which].error for m, pair in table.items()} for network, table in MOMENTUM_SENSITIVITY.items()}
    for which in (0, 1)
)


class TestSummary:
    @pytest.mark.parametrize(
        ("method", "percent"), [(method, percent) for method, runs in WRN28_RUNS.items() for percent in runs]
    )
    def test_published_means_and_standard_errors_follow_from_the_single_runs(self, method, percent):
        found, published = summarise([100 - a for a in WRN28_RUNS[method][percent]]), WRN28[method][percent]
        rounding = 0.005 if (method, percent) == ("deep-r", 30) else 0.0006  # printed as 0.10
        assert found.mean == pytest.approx(published.error, abs=0.0051)
        assert found.se == pytest.approx(published.se, abs=rounding)

    @pytest.mark.parametrize("percent", LENET_DSR_RUNS)
    def test_so_do_those_of_dsr_on_lenet_but_for_a_slip(self, percent):
        found, published = summarise([100 - a for a in LENET_DSR_RUNS[percent]]), MNIST_METHODS["dsr"][percent]
        slip = 97.754 - 97.54 if percent == 1 else 0.0
        assert found.mean + slip == pytest.approx(published.error, abs=0.0051)
        assert found.se == pytest.approx(published.se, abs=0.0006)

    def test_the_standard_error_divides_by_n_minus_one(self):
        assert summarise([1.0, 2.0, 3.0]).se == pytest.approx(1 / math.sqrt(3))

    def test_one_run_has_no_spread(self):
        found = summarise([1.5])
        assert (found.n, found.mean, found.se, found.interval) == (1, 1.5, None, None)

    def test_no_run_has_no_mean(self):
        found = summarise([])
        assert (found.n, found.se, found.interval) == (0, None, None)
        assert math.isnan(found.mean)

    def test_interval(self):
        assert Summary(10, 1.53, 0.02).interval == pytest.approx((1.4908, 1.5692))


class TestDifference:
    def test_in_combined_standard_errors(self):
        assert difference_in_se(Summary(10, 1.6, 0.03), 1.5, 0.04) == pytest.approx(2.0)

    def test_a_published_value_without_error_counts_as_exact(self):
        assert difference_in_se(Summary(10, 1.6, 0.05), 1.5, None) == pytest.approx(2.0)

    def test_nothing_for_a_single_run_or_no_spread(self):
        assert difference_in_se(Summary(1, 1.6, None), 1.5, 0.1) is None
        assert difference_in_se(Summary(2, 1.6, 0.0), 1.5, None) is None


class TestOverlap:
    def test_the_papers_equivalents_overlap_with_dense_but_for_two_by_a_hair(self):
        # With the dense runs of the first table; the paper does not print others.
        gaps = {}
        for model, (_, thin, _, _) in DENSE_EQUIVALENCE.items():
            dense = CIFAR_SNIP[model][1]
            if not intervals_overlap(Summary(10, thin.error, thin.se), Summary(10, dense.error, dense.se)):
                gaps[model] = thin.error - dense.error - 1.96 * (thin.se + dense.se)
        assert list(gaps) == ["wrn-16-8", "wrn-22-8"]
        assert max(gaps.values()) < 0.01

    def test_the_papers_sparsest_networks_do_not_but_for_vgg16_d(self):
        overlapping = [
            model
            for model, (_, dense, _, thin) in CIFAR_SNIP.items()
            if intervals_overlap(Summary(10, thin.error, thin.se), Summary(10, dense.error, dense.se))
        ]
        assert overlapping == ["vgg16-d"]

    def test_it_is_the_sum_of_both_halves(self):
        a = Summary(10, 1.0, 0.1)
        assert intervals_overlap(a, Summary(10, 1.39, 0.1))
        assert not intervals_overlap(a, Summary(10, 1.40, 0.1))

    def test_single_runs_have_no_interval(self):
        a = Summary(10, 1.0, 0.1)
        assert not intervals_overlap(a, summarise([1.0]))
        assert not intervals_overlap(summarise([1.0]), a)


class TestKruskalWallis:
    def test_formula_without_ties(self):
        first, second = [1.0, 4.0, 6.0], [2.0, 3.0, 5.0, 7.0]
        # Ranks are the values: R = 11 and 17, N = 7.
        expected = 12 / (7 * 8) * (11**2 / 3 + 17**2 / 4) - 3 * 8
        assert kruskal_wallis(first, second)[0] == pytest.approx(expected)

    def test_correction_for_ties(self):
        first, second = [1.0, 2.0, 2.0], [2.0, 3.0]
        # Mean ranks: 1, 3, 3 | 3, 5; three tied: divide by 1 - (27 - 3) / (125 - 5).
        plain = 12 / 30 * (7**2 / 3 + 8**2 / 2) - 18
        assert kruskal_wallis(first, second)[0] == pytest.approx(plain / (1 - 24 / 120))

    def test_p_has_one_degree_of_freedom(self):
        h, p = kruskal_wallis(np.arange(20.0), np.arange(5.0, 25.0))
        assert p == pytest.approx(stats.chi2.sf(h, 1))


class TestHolm:
    def test_step_down(self):
        assert holm([0.01, 0.02, 0.03, 0.005]) == pytest.approx([0.03, 0.04, 0.04, 0.02])

    def test_never_above_one(self):
        assert holm([0.6, 0.9]) == [1.0, 1.0]
        assert holm([]) == []


class TestSensitivity:
    def test_the_published_means_give_w_27(self):
        found = sensitivity_test(SPARSE, DENSE)
        assert (found.statistic, found.pairs) == (27.0, 10)
        assert found.p == pytest.approx(0.96, abs=0.005)

    def test_with_all_rows_w_is_38(self):
        found = sensitivity_test(SPARSE, DENSE, leave_out=())
        assert (found.statistic, found.pairs) == (38.0, 12)
        assert found.p == pytest.approx(0.94, abs=0.005)

    def test_with_absolute_deviations_w_is_20(self):
        found = sensitivity_test(SPARSE, DENSE, absolute=True)
        assert (found.statistic, found.pairs) == (20.0, 10)
        assert found.p == pytest.approx(0.44, abs=0.006)

    def test_the_papers_w_and_p_are_those_of_ten_pairs(self):
        mean, deviation = 10 * 11 / 4, math.sqrt(10 * 11 * 21 / 24)
        assert 2 * stats.norm.cdf((22.0 - mean) / deviation) == pytest.approx(0.575, abs=0.001)

    def test_assumptions_are_checked(self):
        found = sensitivity_test(SPARSE, DENSE)
        deviations = [
            [table[n][m] - table[n][0.9] for n in SPARSE for m in SPARSE[n] if m != 0.99] for table in (SPARSE, DENSE)
        ]
        assert found.equal_variance == pytest.approx(stats.levene(*deviations).pvalue)
        assert set(found.normality) == {"sparse", "dense", "log10 sparse", "log10 dense"}
        # The dense deviations are far from normal: a paired t-test would not do.
        assert found.normality["dense"] < 0.05 < found.normality["sparse"]

    def test_few_values_have_no_normality_test(self):
        few = {"net": {0.8: 1.0, 0.9: 2.0}}
        found = sensitivity_test(few, {"net": {0.8: 1.5, 0.9: 2.0}})
        assert found.pairs == 1
        assert set(found.normality.values()) == {None}

    def test_equal_tables_cannot_be_ranked(self):
        with pytest.raises(ValueError, match="nothing to rank"):
            sensitivity_test(SPARSE, SPARSE)
