"""From columns to Estimates: the one place where a kind of number meets its interval."""

from __future__ import annotations

import numpy as np

from audit import statistics
from audit.evidence import Bools, Floats
from audit.metrics.spec import Estimate


def share(successes: Bools, notes: tuple[str, ...] = ()) -> Estimate:
    """The share of true rows of (n,), n > 0, with its Wilson interval."""
    count, n = int(successes.sum()), len(successes)
    return Estimate(value=count / n, samples=n, interval=statistics.proportion(count, n), notes=notes)


def average(values: Floats, notes: tuple[str, ...] = ()) -> Estimate:
    """The mean of (n,), n > 0, with its bootstrap interval."""
    interval = statistics.mean(values)
    return Estimate(
        value=float(values.mean()),
        samples=len(values),
        interval=interval,
        why_no_interval=None if interval else statistics.TOO_FEW,
        notes=notes,
    )


def quantile(values: Floats, probability: float, notes: tuple[str, ...] = ()) -> Estimate:
    """A quantile of (n,), n > 0, with its order-statistics interval."""
    interval = statistics.quantile(values, probability)
    return Estimate(
        value=float(np.quantile(values, probability)),
        samples=len(values),
        interval=interval,
        why_no_interval=None if interval else f"too few examples for an interval of the {probability:g} quantile",
        notes=notes,
    )


def largest(values: Floats, notes: tuple[str, ...] = ()) -> Estimate:
    """The maximum of (n,), n > 0; a maximum has no interval, it describes this sample."""
    return Estimate(
        value=float(values.max()),
        samples=len(values),
        interval=None,
        why_no_interval="a maximum describes this sample",
        notes=notes,
    )
