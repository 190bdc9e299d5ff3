"""Do intervals cover what they claim, and do null comparisons stay silent? By simulation, seeds fixed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from paired_means import mean_difference

from audit import statistics
from audit.compare.ranking import rank
from audit.statistics import PairedCounts


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Coverage hardly depends on the number of resamples; the time does."""
    monkeypatch.setattr(statistics, "PAIRED_RESAMPLES", 499)
    monkeypatch.setattr(statistics, "RESAMPLES", 499)


def between_93_and_97(covered) -> bool:
    return 0.93 <= np.mean(covered) <= 0.97


@pytest.mark.parametrize(("n", "p"), [(50, 0.5), (100, 0.5), (200, 0.8), (500, 0.05), (500, 0.97)])
def test_wilson_covers(n, p):
    intervals = [statistics.proportion(k, n) for k in range(n + 1)]
    drawn = np.random.default_rng(0).binomial(n, p, size=4000)
    assert between_93_and_97([intervals[k].low <= p <= intervals[k].high for k in drawn])


@pytest.mark.parametrize(
    ("n", "first", "second"), [(30, 0.2, 0.05), (50, 0.1, 0.1), (100, 0.2, 0.1), (500, 0.03, 0.01), (500, 0.005, 0.005)]
)
def test_tango_covers_down_to_few_discordant_pairs(n, first, second):
    """`first` and `second` are the chances of a pair right in one model only; the last row expects 2.5 pairs of each kind."""
    drawn = np.random.default_rng(1).multinomial(n, [first, second, 1 - first - second], size=3000)
    tables, counts = np.unique(drawn[:, :2], axis=0, return_counts=True)
    covered = []
    for b, c in tables.tolist():
        interval = statistics.paired_share_difference(PairedCounts(both_right=n - b - c, only_first=b, only_second=c, both_wrong=0))
        covered.append(interval.low <= first - second <= interval.high)
    assert between_93_and_97(np.repeat(covered, counts))


@pytest.mark.parametrize("n", [12, 40])
def test_the_bootstrap_of_a_mean_covers_also_in_small_samples(n):
    """The plain percentile bootstrap covers 90 % at n = 10; that is what the expanded level is for."""
    generator = np.random.default_rng(2)
    intervals = [statistics.mean(generator.normal(size=n)) for _ in range(1000)]
    assert between_93_and_97([interval.low <= 0 <= interval.high for interval in intervals])


@pytest.mark.parametrize("n", [12, 40])
def test_the_paired_bootstrap_of_a_mean_difference_covers(n):
    generator = np.random.default_rng(3)
    covered = []
    for _ in range(1000):
        shared = generator.normal(size=n)
        found = mean_difference(shared + generator.normal(size=n) + 1, shared + generator.normal(size=n) / 2)
        covered.append(found.interval.low <= 1 <= found.interval.high)
    assert between_93_and_97(covered)


def test_the_paired_bootstrap_of_a_difference_of_medians_covers():
    """At n = 12 it covers 98 %: a resampled median takes few values. By n = 150 that has gone."""
    generator = np.random.default_rng(4)
    covered = []
    for _ in range(600):
        shared = generator.normal(size=150)
        found = statistics.paired_bootstrap(
            shared + generator.normal(size=150) + 1,
            shared + generator.normal(size=150),
            lambda a, b: np.median(a, axis=-1) - np.median(b, axis=-1),
        )
        covered.append(found.interval.low <= 1 <= found.interval.high)
    assert between_93_and_97(covered)


@pytest.mark.parametrize("n", [20, 61, 90])
def test_the_order_statistics_of_a_median_cover(n):
    """Coverage is a sum of binomial probabilities, so it jumps with n; at these n the steps allow less than 97 %."""
    generator = np.random.default_rng(5)
    true = scipy.stats.expon.median()
    intervals = [statistics.quantile(generator.exponential(size=n), 0.5) for _ in range(2000)]
    assert between_93_and_97([interval.low <= true <= interval.high for interval in intervals])


def test_models_alike_are_told_apart_in_at_most_5_percent_of_families():
    """Five models of one accuracy whose errors go together as those of versions do; all ten pairs, McNemar and Holm."""
    generator = np.random.default_rng(6)
    flagged = []
    for _ in range(500):
        hard = generator.random(200) < 0.3
        models = [np.where(hard, generator.random(200) < 0.4, generator.random(200) < 0.95) for _ in range(5)]
        found = rank("Clean accuracy", "clean_accuracy", models)
        flagged.append(any(test.adjusted_p_value < 0.05 for test in found.tests))
    assert np.mean(flagged) <= 0.05


def test_the_bootstrap_claims_a_difference_of_equals_in_at_most_5_percent():
    generator = np.random.default_rng(7)
    p_values = [mean_difference(generator.normal(size=100), generator.normal(size=100)).p_value for _ in range(2000)]
    # 5 % and two standard errors of 2000 draws; at n = 30 it is 5.6 % (5000 draws).
    assert np.mean(np.array(p_values) < 0.05) <= 0.06
