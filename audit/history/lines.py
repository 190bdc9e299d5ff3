"""One metric over the versions: points with their tests against earlier ones, broken where audits are not comparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from audit import pairing, statistics
from audit.audited import Audited, VersionRecord
from audit.pairing import Difference
from audit.result import Failed, Measured, MetricRecord, OverallScore
from audit.vocabulary import Better

OVERALL, OVERALL_AT_MOST = "score/overall", "score/overall_at_most"
SCORES = frozenset({OVERALL, OVERALL_AT_MOST})
USUAL = ("clean_accuracy", "adversarial_accuracy_white_box", "adversarial_accuracy_black_box")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A version against an earlier one on the same examples: `difference` = this - earlier, in the metric's unit, 95 % interval.

    `adjusted_p_value` is Holm's over all steps of the metric. At most one of `regression` and `improvement` is true.
    """

    earlier: str
    difference: float
    low: float
    high: float
    samples: int
    p_value: float
    adjusted_p_value: float
    regression: bool = False
    improvement: bool = False


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured value of one version, its interval where it has one, and its step or why there is none (the first has neither)."""

    version: str
    created: str
    value: float
    samples: int
    low: float | None = None
    high: float | None = None
    why_no_interval: str | None = None
    verdict: str | None = None
    step: Step | None = None
    why_no_step: str | None = None


@dataclass(frozen=True, kw_only=True)
class Break:
    """Two neighbours on a line whose audits are not comparable, and why."""

    earlier: str
    later: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A version without a value, and why."""

    version: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric over the versions. Only within a segment may values be compared; `breaks` lie between the segments."""

    key: str
    name: str
    unit: str
    better: Better
    definition: str
    variant: str | None
    threat: str | None
    segments: tuple[tuple[Point, ...], ...]
    breaks: tuple[Break, ...]
    gaps: tuple[Gap, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """All points, oldest version first."""
        return tuple(point for segment in self.segments for point in segment)

    @property
    def regressions(self) -> tuple[Point, ...]:
        """The points that are significantly worse than the version before."""
        return tuple(point for point in self.points if point.step is not None and point.step.regression)


def verdict_of(record: VersionRecord) -> str | None:
    """The registry's word, which a later gate may have changed; else the audit's own."""
    own = record.audited.model.verdict if record.audited is not None else None
    return record.verdict or (own.status if own is not None else None)


def records_of(audit: Audited) -> dict[str, MetricRecord]:
    """A model's metric records by key, with its overall score as one of them."""
    overall = audit.model.overall
    key = OVERALL_AT_MOST if overall.undetermined else OVERALL
    records = {record.key: record for record in audit.model.metrics}
    return records if overall.value is None else {**records, key: _overall(key, overall, overall.value, audit.result.data.samples)}


def _overall(key: str, overall: OverallScore, value: float, samples: int) -> MetricRecord:
    """A score is no metric; as a record it travels the same road, and its definition says which dimensions it rests on."""
    left_out = ", ".join(sorted(overall.undetermined))
    why = "it is the smallest of several scores; their own intervals are in each report"
    return MetricRecord(
        key=key,
        id=key,
        name="Overall score" + (", at most" if left_out else ""),
        symbol="",
        family="",
        unit="points",
        better=Better.HIGHER,
        definition="the weakest dimension, 0 to 100" + (f"; not measured: {left_out}" if left_out else ""),
        source="",
        outcome=Measured(value=value, samples=samples, why_no_interval=why),
    )


def line_of(key: str, versions: Sequence[VersionRecord]) -> Line:
    """The line of a metric that at least one of the versions, oldest first, has a record of."""
    found: list[tuple[Audited, MetricRecord]] = []
    gaps: list[Gap] = []
    points: list[Point] = []
    described: MetricRecord | None = None
    for record in versions:
        metric = records_of(record.audited).get(key) if record.audited is not None else None
        described = metric or described
        if record.audited is None or metric is None or not isinstance(metric.outcome, Measured):
            gaps.append(Gap(version=record.version, because=_why_no_value(record, metric)))
            continue
        found.append((record.audited, metric))
        points.append(_point(record, record.audited, metric.outcome))
    if described is None:
        raise ValueError(f"no version has a metric {key}")
    points = _with_steps(key, points, [audit for audit, _ in found], described.better)
    segments: list[list[Point]] = []
    breaks: list[Break] = []
    for place, point in enumerate(points):
        why = None if place == 0 else _not_comparable(key, found[place - 1], found[place])
        if why is not None:
            breaks.append(Break(earlier=points[place - 1].version, later=point.version, because=why))
        if place == 0 or why is not None:
            segments.append([])
        segments[-1].append(point)
    return Line(
        key=key,
        name=described.name,
        unit=described.unit,
        better=described.better,
        definition=described.definition,
        variant=described.variant,
        threat=described.threat,
        segments=tuple(map(tuple, segments)),
        breaks=tuple(breaks),
        gaps=tuple(gaps),
    )


def _point(record: VersionRecord, audit: Audited, outcome: Measured) -> Point:
    interval = outcome.interval
    return Point(
        version=record.version,
        created=audit.result.created,
        value=outcome.value,
        samples=outcome.samples,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        why_no_interval=outcome.why_no_interval,
        verdict=verdict_of(record),
    )


def _why_no_value(record: VersionRecord, metric: MetricRecord | None) -> str:
    if record.audited is None:
        return record.why_none or "not audited"
    if metric is None:
        return "its audit does not have this value"
    outcome = metric.outcome
    if isinstance(outcome, Measured):
        raise ValueError("a measured value is no gap")
    return f"{outcome.kind.replace('_', ' ')}: {outcome.error if isinstance(outcome, Failed) else outcome.because}"


def _with_steps(key: str, points: list[Point], audits: list[Audited], better: Better) -> list[Point]:
    """Every point but the first with its paired difference against the nearest earlier version that allows one."""
    if key in SCORES:
        return [replace(point, why_no_step="a score is not tested; the accuracies behind it are") for point in points]
    steps: dict[int, tuple[int, Difference]] = {}
    refused: dict[int, str] = {}
    for place in range(1, len(points)):
        for earlier in range(place - 1, -1, -1):
            found = pairing.difference(audits[place], audits[earlier], key)
            if isinstance(found, Difference):
                steps[place] = earlier, found
                break
            refused.setdefault(place, found.because)
    adjusted = dict(zip(steps, statistics.holm([step.p_value for _, step in steps.values()]), strict=True)) if steps else {}
    return [
        replace(point, step=_step(points[steps[place][0]].version, steps[place][1], adjusted[place], better))
        if place in steps
        else replace(point, why_no_step=refused.get(place))
        for place, point in enumerate(points)
    ]


def _step(earlier: str, found: Difference, adjusted: float, better: Better) -> Step:
    significant = adjusted < 1 - statistics.LEVEL and better is not Better.NEITHER
    worse = found.value < 0 if better is Better.HIGHER else found.value > 0
    return Step(
        earlier=earlier,
        difference=found.value,
        low=found.interval.low,
        high=found.interval.high,
        samples=found.samples,
        p_value=found.p_value,
        adjusted_p_value=adjusted,
        regression=significant and worse,
        improvement=significant and not worse,
    )


def _not_comparable(key: str, earlier: tuple[Audited, MetricRecord], later: tuple[Audited, MetricRecord]) -> str | None:
    """Why two neighbours' values may not be compared; None where they may, even if no test pairs them."""
    (a, first), (b, second) = earlier, later
    if (first.definition, first.unit) != (second.definition, second.unit):
        if key == OVERALL_AT_MOST:
            return f"{first.definition}; then {second.definition}"
        return "its definition changed between the versions of the tool"
    # A score rests on the accuracies, and is the smallest over all threats.
    ids = USUAL if key in SCORES else (key,)
    return next(
        (
            found.because
            for found in pairing.comparability(a, b)
            if any(map(found.blocks, ids)) or (key in SCORES and found.what == "threats")
        ),
        None,
    )
