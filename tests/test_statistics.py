"""Intervals against formulas and simulation, tests against worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from paired_means import mean_difference

from audit import statistics


def test_wilson_against_its_formula():
    n, successes, z = 50, 43, 1.959963984540054
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    interval = statistics.proportion(successes, n)
    assert interval.low == pytest.approx(centre - half, abs=1e-9)
    assert interval.high == pytest.approx(centre + half, abs=1e-9)


def test_bootstrap_mean_agrees_with_the_normal_approximation():
    values = np.random.default_rng(1).normal(3, 2, size=400)
    interval = statistics.mean(values)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert interval.low == pytest.approx(values.mean() - half, abs=0.05)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.05)


def test_bootstrap_mean_is_repeatable_and_silent_on_few_examples():
    values = np.random.default_rng(2).random(50)
    assert statistics.mean(values) == statistics.mean(values)
    assert statistics.mean(values[:9]) is None


def test_bootstrap_mean_of_a_constant_is_that_constant():
    interval = statistics.mean(np.full(20, 0.25))
    assert (interval.low, interval.high) == (0.25, 0.25)
    # The mean of twenty equal values may miss them by a digit; the value reported lies in its interval all the same.
    for value in np.random.default_rng(0).random(50):
        column = np.full(20, value)
        interval = statistics.mean(column)
        assert interval.low <= column.mean() <= interval.high


@pytest.mark.parametrize("size", [10, 11, 12])
def test_median_interval_of_the_smallest_samples(size):
    generator = np.random.default_rng(5)
    covered = []
    for _ in range(400):
        values = generator.normal(size=size)
        interval = statistics.quantile(values, 0.5)
        assert interval.low <= np.median(values) <= interval.high
        covered.append(interval.low <= 0 <= interval.high)
    assert np.mean(covered) >= 0.93
    assert statistics.quantile(np.full(size, 0.3), 0.5) == statistics.Interval(low=0.3, high=0.3, method="order statistics")


def test_median_interval_covers_the_median():
    generator = np.random.default_rng(3)
    covered = [
        (interval := statistics.quantile(generator.exponential(size=60), 0.5)).low <= math.log(2) <= interval.high
        for _ in range(400)
    ]
    # Order statistics are conservative: at least 95 %, less two standard errors of 400 draws.
    assert np.mean(covered) >= 0.93


def test_high_quantile_of_a_small_sample_has_no_interval():
    assert statistics.quantile(np.arange(12.0), 0.95) is None


def test_mcnemar_by_hand():
    # 8 discordant pairs, 1 against 7: two-sided binomial tail 2 * (1 + 8) / 256.
    counts = statistics.PairedCounts(both_right=10, only_first=1, only_second=7, both_wrong=2)
    assert statistics.mcnemar(counts) == pytest.approx(18 / 256)


def test_mcnemar_without_discordant_pairs_finds_nothing():
    assert statistics.mcnemar(statistics.PairedCounts(both_right=3, only_first=0, only_second=0, both_wrong=1)) == 1.0


def test_paired_counts_by_hand():
    first, second = np.array([True, True, False, False]), np.array([True, False, True, False])
    counts = statistics.PairedCounts.of(first, second)
    assert (counts.both_right, counts.only_first, counts.only_second, counts.both_wrong) == (1, 1, 1, 1)


def test_holm_keeps_the_familywise_error_under_the_null():
    generator = np.random.default_rng(4)
    rejected = [min(statistics.holm(list(generator.random(6)))) < 0.05 for _ in range(2000)]
    assert np.mean(rejected) <= 0.065


@pytest.mark.parametrize(("comparisons", "pairs"), [(1, 6), (3, 7), (10, 9)])
def test_smallest_detectable_difference_is_the_smallest_all_one_sided_count(comparisons, pairs):
    assert statistics.smallest_detectable_difference(100, comparisons) == pairs / 100
    just = statistics.PairedCounts(both_right=0, only_first=pairs, only_second=0, both_wrong=0)
    less = statistics.PairedCounts(both_right=0, only_first=pairs - 1, only_second=0, both_wrong=0)
    assert statistics.mcnemar(just) * comparisons < 0.05 <= statistics.mcnemar(less) * comparisons


def test_five_pairs_can_detect_nothing():
    assert statistics.smallest_detectable_difference(5, 1) is None


def counts(b: int, c: int, n: int) -> statistics.PairedCounts:
    return statistics.PairedCounts(both_right=n - b - c, only_first=b, only_second=c, both_wrong=0)


@pytest.mark.parametrize(
    ("b", "c", "n", "low", "high"),
    [
        # Fagerland, Lydersen & Laake 2014 (Statistics in Medicine 33), airway hyper-responsiveness: 1 and 7 of 21 pairs.
        (1, 7, 21, -0.517, -0.026),
    ],
)
def test_tango_against_a_published_example(b, c, n, low, high):
    interval = statistics.paired_share_difference(counts(b, c, n))
    assert (round(interval.low, 3), round(interval.high, 3)) == (low, high)


@pytest.mark.parametrize(("b", "c", "n"), [(1, 7, 21), (40, 20, 160), (3, 0, 500), (0, 0, 40), (0, 25, 30), (10, 10, 20)])
def test_tango_against_the_score_test_inverted_on_a_grid(b, c, n):
    """Every difference that the score test does not reject, its nuisance parameter by maximising the likelihood on a grid."""
    interval = statistics.paired_share_difference(counts(b, c, n))
    inside = []
    for delta in np.linspace(-0.999, 0.999, 667):
        q = np.linspace(max(0, -delta), (1 - delta) / 2, 4001)[1:-1]
        likelihood = b * np.log(q + delta) + c * np.log(q) + (n - b - c) * np.log1p(-2 * q - delta)
        best = q[likelihood.argmax()]
        score = (b - c - n * delta) / math.sqrt(n * (2 * best + delta - delta**2))
        if abs(score) < 1.959964:
            inside.append(delta)
    assert interval.low == pytest.approx(min(inside), abs=0.006)
    assert interval.high == pytest.approx(max(inside), abs=0.006)


@pytest.mark.parametrize("n", [1, 10, 500])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_tango_without_discordant_pairs_has_a_width_in_closed_form(n, level):
    interval = statistics.paired_share_difference(counts(0, 0, n), level=level)
    z = {0.9: 1.6448536269514722, 0.95: 1.959963984540054}[level]
    assert interval.high == pytest.approx(z * z / (n + z * z), abs=1e-9)
    assert interval.low == -interval.high and interval.level == level


def test_tango_is_antisymmetric_contains_its_estimate_and_stays_within_one():
    for n in (1, 7, 60):
        for b in range(0, n + 1, max(1, n // 6)):
            for c in range(0, n + 1 - b, max(1, n // 6)):
                there, back = (statistics.paired_share_difference(counts(*pair, n)) for pair in ((b, c), (c, b)))
                assert (there.low, there.high) == (-back.high, -back.low)
                assert -1 <= there.low <= (b - c) / n <= there.high <= 1


def test_a_paired_difference_uses_that_the_examples_are_the_same():
    generator = np.random.default_rng(8)
    shared = generator.normal(size=100) * 10
    first, second = shared + generator.normal(size=100), shared + generator.normal(size=100) - 1
    found = mean_difference(first, second)
    difference = first - second
    half = 1.984 * difference.std(ddof=1) / 10
    assert found.interval.low == pytest.approx(difference.mean() - half, abs=0.03)
    assert found.interval.high == pytest.approx(difference.mean() + half, abs=0.03)
    assert found.p_value < 0.001


def test_the_p_value_of_a_bootstrap_is_that_of_the_paired_t_test():
    generator = np.random.default_rng(9)
    for shift in (0.1, 0.3, 0.5):
        first, second = generator.normal(size=25) + shift, generator.normal(size=25)
        found = mean_difference(first, second)
        expected = scipy.stats.ttest_rel(first, second).pvalue
        assert found.p_value == pytest.approx(expected, abs=0.02)
        assert (found.p_value < 0.05) == (not found.interval.low <= 0 <= found.interval.high)


def test_a_column_against_itself_differs_by_exactly_nothing():
    values = np.random.default_rng(10).random(30)
    found = statistics.paired_bootstrap(values, values, lambda a, b: a.mean(axis=-1) / b.mean(axis=-1), null=1.0)
    assert (found.interval.low, found.interval.high, found.p_value) == (1.0, 1.0, 1.0)


def test_a_paired_ratio_by_the_delta_method_and_none_without_a_denominator():
    generator = np.random.default_rng(11)
    second = generator.gamma(4, size=400)
    first = 0.5 * second + generator.normal(0, 0.1, size=400)

    def ratio(a, b):
        with np.errstate(divide="ignore", invalid="ignore"):
            return a.mean(axis=-1) / b.mean(axis=-1)

    found = statistics.paired_bootstrap(first, second, ratio, null=1.0)
    half = 1.96 * np.std(first - first.mean() / second.mean() * second) / second.mean() / 20
    assert found.interval.low == pytest.approx(first.mean() / second.mean() - half, abs=5e-4)
    assert found.interval.high == pytest.approx(first.mean() / second.mean() + half, abs=5e-4)
    assert found.p_value < 0.001
    assert statistics.paired_bootstrap(first, np.zeros(400), ratio, null=1.0) is None


def test_few_pairs_have_no_bootstrap():
    assert mean_difference(np.arange(9.0), np.ones(9)) is None
    assert mean_difference(np.arange(10.0), np.ones(10)) is not None
