"""Intervals against formulas and simulation, tests against worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
