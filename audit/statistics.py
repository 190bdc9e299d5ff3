"""Intervals and tests, one method per kind of number. All of it is scipy; nothing is home-made.

| kind | method |
|---|---|
| proportions over examples | `proportion` (Wilson), `exceeds` (exact binomial test) |
| means over examples | `mean` (percentile bootstrap over examples, expanded for small samples) |
| quantiles | `quantile` (order statistics) |
| difference of two shares on the same examples | `paired_share_difference` (Tango's score interval), `mcnemar` (exact) |
| difference or ratio of other statistics on the same examples | `paired_bootstrap` |
| statistics of several columns, all that belongs to an example moving together | `over_examples` |
| several claims at once | `holm` |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats

from audit.evidence import Bools, Floats
from audit.result import Interval

LEVEL = 0.95
# Below this no interval is honest: the value "describes this sample".
SMALLEST_SAMPLE = 10
RESAMPLES = 2000
# A claim among fifty must be able to reach p = 0.05 / 50.
PAIRED_RESAMPLES = 9999
BOOTSTRAP = "bootstrap over examples"
PAIRED = "paired bootstrap over examples"
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
    """Expanded percentile bootstrap over examples of the mean of `values` (n,); None below 10 examples."""
    if len(values) < SMALLEST_SAMPLE:
        return None
    if np.ptp(values) == 0:
        # The mean as it is reported: rounded sums of equal values may miss the value by its last digit.
        constant = float(values.mean())
        return Interval(low=constant, high=constant, method=BOOTSTRAP)
    found = _resampled((values,), np.mean, level=LEVEL, resamples=RESAMPLES, seed=seed).confidence_interval
    return Interval(low=float(found.low), high=float(found.high), method=BOOTSTRAP)


def _resampled(columns: tuple[Floats, ...], statistic: Callable[..., Any], *, level: float, resamples: int, seed: int) -> Any:
    """Percentile bootstrap over the rows of `columns`, each (n,), by scipy, at a level raised for small samples.

    The bootstrap's spread lacks the factor n / (n - 1) and its percentiles are normal ones: at n = 10 it covers 90 %. Hesterberg
    2015 (The American Statistician 69, section 3.3) reads it further out, where the interval is as wide as Student's.
    """
    n = len(columns[0])
    tail = scipy.stats.norm.cdf(np.sqrt(n / (n - 1)) * scipy.stats.t.ppf((1 - level) / 2, n - 1))
    return scipy.stats.bootstrap(
        columns,
        statistic,
        confidence_level=1 - 2 * tail,
        n_resamples=resamples,
        method="percentile",
        paired=len(columns) > 1,
        vectorized=True,
        batch=100,
        rng=np.random.default_rng(seed),
    )


def quantile(values: Floats, probability: float) -> Interval | None:
    """Distribution-free interval of a quantile from order statistics; None where the sample is too small to give one."""
    if len(values) < SMALLEST_SAMPLE:
        return None
    found = scipy.stats.quantile_test(values, q=0, p=probability).confidence_interval(LEVEL)
    if not (np.isfinite(found.low) and np.isfinite(found.high)):
        return None
    return Interval(low=float(found.low), high=float(found.high), method="order statistics")


def exceeds(successes: int, trials: int, share: float) -> float:
    """One-sided exact binomial p-value that a share is above `share`, in [0, 1].

    >>> exceeds(5, 5, 0.5)
    0.03125
    """
    return float(scipy.stats.binomtest(successes, trials, share, alternative="greater").pvalue)


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """The 2 x 2 table of two models on the same examples."""

    both_right: int
    only_first: int
    only_second: int
    both_wrong: int

    @property
    def samples(self) -> int:
        """How many examples both models saw."""
        return self.both_right + self.only_first + self.only_second + self.both_wrong

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


def paired_share_difference(counts: PairedCounts, *, level: float = LEVEL) -> Interval:
    """Tango's score interval of (share right of the first - share right of the second), in [-1, 1].

    It has a width without any discordant pair, where a bootstrap collapses to a point. A one-sided 95 % bound is the end of the
    interval at `level` 0.90. Source: Tango 1998 (Statistics in Medicine 17, 891-908).

    >>> interval = paired_share_difference(PairedCounts(both_right=96, only_first=0, only_second=0, both_wrong=0))
    >>> round(interval.low, 4), round(interval.high, 4)
    (-0.0385, 0.0385)
    """
    n = counts.samples
    high = _tango_upper(counts.only_first, counts.only_second, n, level)
    low = -_tango_upper(counts.only_second, counts.only_first, n, level)
    return Interval(low=low, high=high, method="Tango score, paired", level=level)


def _tango_upper(b: int, c: int, n: int, level: float) -> float:
    """The upper end for b pairs right in the first only and c in the second only, in the paper's symbols."""
    critical = float(scipy.stats.norm.ppf((1 + level) / 2)) ** 2

    def excess(delta: float) -> float:
        """(b - c - n delta)^2 - z^2 times its variance under delta: negative inside the interval."""
        linear, constant = -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
        root = np.sqrt(max(0.0, linear**2 - 8 * n * constant))
        # Of the two forms of the quadratic's root, the one that subtracts no equal numbers.
        q = -2 * constant / (linear + root) if linear > 0 else (root - linear) / (4 * n)
        return float((b - c - n * delta) ** 2 - critical * n * (2 * q + delta * (1 - delta)))

    # Without spread in the sample the estimate itself is a root; the end of the interval is the next one.
    start = (b - c) / n + 1e-9
    return float(scipy.optimize.brentq(excess, start, 1.0, xtol=1e-12)) if start < 1 else 1.0


@dataclass(frozen=True, kw_only=True)
class Tested:
    """An interval of a paired difference or ratio, and the two-sided p-value that it equals `null`."""

    interval: Interval
    p_value: float


def paired_bootstrap(
    first: Floats,
    second: Floats,
    statistic: Callable[[Floats, Floats], Floats],
    *,
    null: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> Tested | None:
    """Expanded percentile bootstrap of a statistic of two columns (n,), resampled jointly over examples.

    Args:
        first: one value per example.
        second: the other model's, of the same examples.
        statistic: reduces the last axis of two arrays (..., n), for example the difference of their medians.
        null: what the statistic is when there is no difference; the p-value is the level at which the interval excludes it.
        level: of the two-sided interval.
        seed: of the resampling.

    Returns:
        None below 10 examples, or where a resample has no finite value (a ratio whose denominator vanishes).
    """
    n = len(first)
    if n < SMALLEST_SAMPLE:
        return None
    if np.array_equal(first, second):
        same = float(statistic(first, second))
        return Tested(interval=Interval(low=same, high=same, method=PAIRED, level=level), p_value=1.0)
    with np.errstate(invalid="ignore"):  # scipy subtracts what is not finite before it is looked for below
        found = _resampled((first, second), lambda a, b, axis: statistic(a, b), level=level, resamples=PAIRED_RESAMPLES, seed=seed)
    drawn, ends = found.bootstrap_distribution, found.confidence_interval
    if not np.isfinite(drawn).all():
        return None
    tail = (1 + min(int((drawn <= null).sum()), int((drawn >= null).sum()))) / (PAIRED_RESAMPLES + 1)
    # The expansion of `_resampled`, the other way round.
    p_value = 2 * float(scipy.stats.t.cdf(scipy.stats.norm.ppf(min(tail, 0.5)) * np.sqrt((n - 1) / n), n - 1))
    return Tested(interval=Interval(low=float(ends.low), high=float(ends.high), method=PAIRED, level=level), p_value=p_value)


def over_examples(count: int, statistic: Callable[[Floats], Floats], *, seed: int = 0) -> Interval | None:
    """Expanded percentile bootstrap over examples of a statistic of whatever belongs to them.

    Args:
        count: n, the number of examples.
        statistic: (b, n) weights, the times each example was drawn over n, to (b,) values: a mean of (n, k) is weights @ values.
        seed: of the resampling.

    Returns:
        None below 10 examples, or where a resample has no finite value (a ratio whose denominator vanishes).

    >>> values = np.arange(100.0)
    >>> interval = over_examples(100, lambda weights: weights @ values)
    >>> round(interval.low), round(interval.high)
    (44, 55)
    """
    if count < SMALLEST_SAMPLE:
        return None

    def resampled(rows: Any, axis: int) -> Floats:
        drawn = np.atleast_2d(np.moveaxis(rows, axis, -1)).astype(np.int64)
        flat = (drawn + count * np.arange(len(drawn))[:, None]).ravel()
        weights = np.bincount(flat, minlength=count * len(drawn)).reshape(len(drawn), count) / count
        found = np.asarray(statistic(weights))
        return found if np.ndim(rows) > 1 else found[0]

    whole = float(statistic(np.full((1, count), 1 / count))[0])
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        # Resamples that all give one value are a point, as below; nothing else is wrong with them.
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
        found = _resampled((np.arange(count, dtype=np.float64),), resampled, level=LEVEL, resamples=RESAMPLES, seed=seed)
    drawn, ends = found.bootstrap_distribution, found.confidence_interval
    if not np.isfinite(drawn).all():
        return None
    if np.ptp(drawn) == 0:
        return Interval(low=whole, high=whole, method=BOOTSTRAP)
    return Interval(low=float(ends.low), high=float(ends.high), method=BOOTSTRAP)


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
