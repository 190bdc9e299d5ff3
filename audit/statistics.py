"""Intervals and tests, one method per kind of number. All of it is scipy; nothing is home-made.

| kind | method |
|---|---|
| proportions over examples | `proportion` (Wilson) |
| means over examples | `mean` (percentile bootstrap over examples) |
| quantiles | `quantile` (order statistics) |
| difference of two models on the same examples | `mcnemar` (exact), `holm` over all pairs |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.stats

from audit.evidence import Bools, Floats
from audit.result import Interval

LEVEL = 0.95
# Below this no interval is honest: the value "describes this sample".
SMALLEST_SAMPLE = 10
RESAMPLES = 2000
TOO_FEW = f"fewer than {SMALLEST_SAMPLE} examples: it describes this sample"


def proportion(successes: int, trials: int) -> Interval:
    """Wilson 95 % interval of a share in [0, 1].

    >>> interval = proportion(8, 10)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.49, 0.943)
    """
    low, high = scipy.stats.binomtest(successes, trials).proportion_ci(LEVEL, method="wilson")
    return Interval(low=float(low), high=float(high), method="Wilson")


def mean(values: Floats, seed: int = 0) -> Interval | None:
    """Percentile bootstrap over examples of the mean of `values` (n,); None below 10 examples."""
    if len(values) < SMALLEST_SAMPLE:
        return None
    if np.ptp(values) == 0:
        # The mean as it is reported: rounded sums of equal values may miss the value by its last digit.
        constant = float(values.mean())
        return Interval(low=constant, high=constant, method="bootstrap over examples")
    found = scipy.stats.bootstrap(
        (values,),
        np.mean,
        confidence_level=LEVEL,
        n_resamples=RESAMPLES,
        method="percentile",
        batch=100,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(low=float(found.low), high=float(found.high), method="bootstrap over examples")


def quantile(values: Floats, probability: float) -> Interval | None:
    """Distribution-free interval of a quantile from order statistics; None where the sample is too small to give one."""
    if len(values) < SMALLEST_SAMPLE:
        return None
    found = scipy.stats.quantile_test(values, q=0, p=probability).confidence_interval(LEVEL)
    if not (np.isfinite(found.low) and np.isfinite(found.high)):
        return None
    return Interval(low=float(found.low), high=float(found.high), method="order statistics")


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """The 2 x 2 table of two models on the same examples."""

    both_right: int
    only_first: int
    only_second: int
    both_wrong: int

    @classmethod
    def of(cls, first: Bools, second: Bools) -> PairedCounts:
        """Count the four cells of two (n,) columns."""
        return cls(
            both_right=int(np.sum(first & second)),
            only_first=int(np.sum(first & ~second)),
            only_second=int(np.sum(~first & second)),
            both_wrong=int(np.sum(~first & ~second)),
        )


def mcnemar(counts: PairedCounts) -> float:
    """Two-sided exact McNemar p-value: a binomial test on the discordant pairs; 1 when there are none.

    >>> mcnemar(PairedCounts(both_right=0, only_first=5, only_second=0, both_wrong=0))
    0.0625
    """
    discordant = counts.only_first + counts.only_second
    if discordant == 0:
        return 1.0
    return float(scipy.stats.binomtest(counts.only_first, discordant, 0.5).pvalue)


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = running
    return [float(value) for value in adjusted]


def smallest_detectable_difference(samples: int, comparisons: int) -> float | None:
    """The smallest share of one-sided discordant pairs that an exact McNemar test over n pairs could call significant.

    With Holm over `comparisons` pairs the first step needs p < 0.05 / comparisons; None when not even n pairs suffice.
    """
    for count in range(1, samples + 1):
        if 2 * 0.5**count < (1 - LEVEL) / comparisons:
            return count / samples
    return None
