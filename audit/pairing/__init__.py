"""Two audits of the same examples: the paired difference of a metric, or why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

import numpy as np

from audit import statistics
from audit.audited import Audited
from audit.evidence import Bools, Floats
from audit.pairing.columns import CURVE, Behind, Statistic, behind, value_of
from audit.pairing.obstacles import Obstacle, comparability, shared_rows
from audit.result import Failed, Interval, Measured, MetricRecord
from audit.statistics import SMALLEST_SAMPLE, PairedCounts, Tested
from audit.text import printable
from audit.vocabulary import Better

__all__ = ["Difference", "NotComparable", "Obstacle", "comparability", "difference", "outcomes", "value_of"]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The paired difference of one metric of two audits, on the examples known in both.

    `first` and `second` are the values on those `samples` examples and `value` = first - second. `counts` is there for shares of
    examples. The p-value is exact McNemar for shares, else the level at which the interval excludes 0; it is not adjusted.
    """

    key: str
    first: float
    second: float
    value: float
    interval: Interval
    samples: int
    p_value: float
    better: Better
    unit: str
    counts: PairedCounts | None = None


@dataclass(frozen=True, kw_only=True)
class NotComparable:
    """Why there is no paired difference of a metric; completes "not comparable, because ..."."""

    key: str
    because: str


def difference(a: Audited, b: Audited, key: str, *, level: float = statistics.LEVEL) -> Difference | NotComparable:
    """The paired difference a - b of the metric at `key`, with its interval at `level`; or why there is none."""

    def no(because: str) -> NotComparable:
        return NotComparable(key=key, because=because)

    obstacle = next((found for found in comparability(a, b) if found.blocks(key)), None)
    if obstacle is not None:
        return no(obstacle.because)
    first, second = (_measured(audit, key) for audit in (a, b))
    for record in (first, second):
        if isinstance(record, str):
            return no(record)
    assert isinstance(first, MetricRecord) and isinstance(second, MetricRecord)
    if (changed := _changed(a, b, first, second)) is not None:
        return no(changed)
    left, right = behind(a, first), behind(b, second)
    for found in (left, right):
        if isinstance(found, str):
            return no(found)
    assert isinstance(left, Behind) and isinstance(right, Behind)
    rows, others = shared_rows(a, b)
    both = left.known[rows] & right.known[others]
    x, y = left.values[rows][both], right.values[others][both]
    if len(x) < SMALLEST_SAMPLE:
        return no(f"only {len(x)} examples have a value in both audits, and below {SMALLEST_SAMPLE} no interval is honest")
    one, other = (float(left.statistic.of(column)) for column in (x, y))
    counts = None
    if left.statistic is Statistic.SHARE:
        counts = PairedCounts.of(x == 1, y == 1)
        interval, p_value = statistics.paired_share_difference(counts, level=level), statistics.mcnemar(counts)
    else:
        noise = 0.0 if np.array_equal(x, y) else abs(one) * left.noise + abs(other) * right.noise
        tested = _tested(x, y, left.statistic, noise=noise, level=level)
        if tested is None:
            return no("the resampled differences are not finite")
        interval, p_value = tested.interval, tested.p_value
    return Difference(
        key=key,
        first=one,
        second=other,
        value=one - other,
        interval=interval,
        samples=len(x),
        p_value=p_value,
        better=first.better,
        unit=first.unit,
        counts=counts,
    )


def outcomes(audits: Sequence[Audited], key: str) -> tuple[Bools, ...] | NotComparable:
    """Which of the examples that all audits share are right under the share at `key`, one (n,) per audit; or why not.

    Every pair of the audits must be comparable.
    """
    for a, b in combinations(audits, 2):
        found = difference(a, b, key)
        if isinstance(found, NotComparable):
            return found
    shared = reduce(np.intersect1d, [audit.ids for audit in audits])
    if len(shared) < SMALLEST_SAMPLE:
        return NotComparable(key=key, because=f"all of them together share {len(shared)} examples")
    columns = []
    for audit in audits:
        record = audit.model.metric(key)
        found_behind = behind(audit, record) if record is not None else ""
        if isinstance(found_behind, str) or found_behind.statistic is not Statistic.SHARE or not found_behind.known.all():
            return NotComparable(key=key, because="it is no share of all examples")
        _, _, rows = np.intersect1d(shared, audit.ids, return_indices=True)
        columns.append(np.asarray(found_behind.values[rows] == 1))
    return tuple(columns)


def _tested(x: Floats, y: Floats, statistic: Statistic, *, noise: float, level: float) -> Tested | None:
    """The bootstrap over examples; `noise` from within the examples widens the interval and what counts as no difference."""
    value = float(statistic.of(x) - statistic.of(y))
    tested = statistics.paired_bootstrap(
        x, y, lambda a, b: statistic.of(a) - statistic.of(b), null=float(np.copysign(noise, value)), level=level
    )
    if tested is None or noise == 0:
        return tested
    interval = replace(
        tested.interval,
        low=tested.interval.low - noise,
        high=tested.interval.high + noise,
        method=f"{tested.interval.method}, widened by the noise of the directions",
    )
    return Tested(interval=interval, p_value=1.0 if abs(value) <= noise else tested.p_value)


def _measured(audit: Audited, key: str) -> MetricRecord | str:
    """The record of a measured metric, or why there is none."""
    record, name = audit.model.metric(key), printable(audit.label, 80)
    if record is None:
        return f"it was not asked for in the audit of {name}"
    outcome = record.outcome
    if isinstance(outcome, Measured):
        return record
    if isinstance(outcome, Failed):
        return f"it failed for {name} ({printable(outcome.error)})"
    return f"it is {outcome.kind.replace('_', ' ')} for {name}: {printable(outcome.because)}"


def _changed(a: Audited, b: Audited, first: MetricRecord, second: MetricRecord) -> str | None:
    """Why two records of one key are not the same measurement, if they are not."""
    if (first.definition, first.unit, first.better) != (second.definition, second.unit, second.better):
        return "its definition changed between the versions of the tool"
    if first.id == "attack_success_rate" and first.notes[:1] != second.notes[:1]:
        return f"it rests on another attack ({printable(' '.join(first.notes[:1]))}; {printable(' '.join(second.notes[:1]))})"
    arms = [{curve.threat: curve.arm for curve in audit.model.curves}.get(first.threat or "") for audit in (a, b)]
    if first.id == CURVE and arms[0] != arms[1]:
        return f"one curve rests on {arms[0]} attacks, the other on {arms[1]} ones"
    return None
