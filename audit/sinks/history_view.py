"""A history in words: what the terminal prints and the page shows, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from audit.history import History, Line, Point, Step, Version
from audit.sinks import report_words as words
from audit.vocabulary import Unit

Mark = Literal["regression", "improvement", ""]
ARROWS: dict[Mark, str] = {"regression": "▼ ", "improvement": "▲ ", "": ""}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One version of one metric, in words; without a value, `why_none`. `broken` says why it does not follow the row above."""

    version: str
    day: str = ""
    samples: str = ""
    value: str = ""
    interval: str = ""
    verdict: str = ""
    change: str = ""
    mark: Mark = ""
    why_none: str = ""
    broken: str = ""


@dataclass(frozen=True, kw_only=True)
class Trend:
    """One metric: what it is, what happened to it, and its rows. `notes` are reasons that many rows share."""

    line: Line
    title: str
    direction: str
    finding: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HistoryView:
    """The whole history in words; `findings` are its regressions, or one sentence that there are none."""

    name: str
    versions: str
    findings: tuple[str, ...]
    worse: bool
    trends: tuple[Trend, ...]
    unaudited: tuple[Row, ...]


def view(history: History) -> HistoryView:
    """The history in words."""
    audited = sum(version.created is not None for version in history.versions)
    trends = tuple(_trend(line, history.versions) for line in history.lines)
    worse = [f"{words.opening(trend.title)}: {trend.finding}" for trend in trends if trend.line.regressions]
    tested = any(point.step is not None for line in history.lines for point in line.points)
    calm = (
        "No version is significantly worse than the one before it."
        if tested
        else "No two versions could be tested against each other."
    )
    return HistoryView(
        name=history.name,
        versions=f"{words.counted(len(history.versions), 'version')}, {words.grouped(audited)} audited",
        findings=tuple(worse) or ((words.sentence(history.no_trend),) if history.no_trend else (calm,)),
        worse=bool(worse),
        trends=trends,
        unaudited=tuple(Row(version=item.version, why_none=item.why_none or "") for item in history.versions if item.why_none),
    )


def shown(line: Line, value: float) -> str:
    """A value of the line with its unit: `72.0 %`, `0.720 prob.`, `71.2 points`."""
    where = line.variant or line.threat
    unit = words.unit_word(line.unit, where)
    return f"{words.written(value, line.unit, where)}{'' if unit.startswith('/') else words.NO_BREAK}{unit}".strip(words.NO_BREAK)


def signed(line: Line, step: Step) -> str:
    """A difference with its interval: `−6.2 points (−9.0 to −3.4)`."""
    unit = "points" if line.unit == Unit.SHARE.value else words.unit_word(line.unit, line.variant or line.threat)
    value, low, high = (
        words.written(end, line.unit, line.variant or line.threat) for end in (step.difference, step.low, step.high)
    )
    plus = "+" if step.difference > 0 else ""
    return " ".join(filter(None, (f"{plus}{value}", unit, f"({low} to {high})")))


def _trend(line: Line, versions: tuple[Version, ...]) -> Trend:
    points = {point.version: point for point in line.points}
    gaps = {gap.version: gap.because for gap in line.gaps}
    broken = {item.later: item for item in line.breaks}
    reasons = {point.why_no_step for point in line.points[1:]}
    same = next(iter(reasons)) if len(reasons) == 1 and len(line.points) > 1 else None
    rows, before = [], None
    for version in versions:
        point = points.get(version.version)
        if point is None:
            rows.append(Row(version=version.version, why_none=gaps.get(version.version, "")))
            continue
        between = broken.get(version.version)
        because = f"not comparable with version {between.earlier}: {between.because}" if between is not None else ""
        rows.append(_row(line, point, before, broken=because, same=same))
        before = point.version
    threat = "" if line.threat is None else f", {words.threat_label(line.threat)}"
    return Trend(
        line=line,
        title=line.name + threat,
        direction={"higher": "higher is better", "lower": "lower is better"}.get(line.better.value, "neither direction is better"),
        finding=_finding(line),
        rows=tuple(rows),
        notes=_notes(line, same),
    )


def _row(line: Line, point: Point, before: str | None, *, broken: str, same: str | None) -> Row:
    where = line.variant or line.threat
    bounds = [words.written(end, line.unit, where) for end in (point.low, point.high) if end is not None]
    mark: Mark = ""
    change = "" if point.why_no_step in (None, same) or broken else f"not tested: {point.why_no_step}"
    if point.step is not None:
        mark = "regression" if point.step.regression else "improvement" if point.step.improvement else ""
        against = "" if point.step.earlier == before else f" against version {point.step.earlier}"
        change = f"{ARROWS[mark]}{mark}{' ' if mark else ''}{signed(line, point.step)}{against}"
    return Row(
        version=point.version,
        day=point.created[:10],
        samples=words.grouped(point.samples),
        value=shown(line, point.value),
        interval=" to ".join(bounds) or "none",
        verdict=point.verdict or "",
        change=change,
        mark=mark,
        broken=broken,
    )


def _notes(line: Line, same: str | None) -> tuple[str, ...]:
    untested = [] if same is None else [words.sentence(f"no version is tested against the one before: {same}")]
    without = dict.fromkeys(point.why_no_interval for point in line.points if point.why_no_interval)
    return (*untested, *(words.sentence(f"no interval: {reason}") for reason in without))


def _finding(line: Line) -> str:
    worse = [f"version {point.version}: {signed(line, point.step)}" for point in line.regressions if point.step is not None]
    if worse:
        return f"worse in {'; '.join(worse)}"
    steps = [point.step for point in line.points if point.step is not None]
    better = [point.version for point in line.points if point.step is not None and point.step.improvement]
    if better:
        return f"better in version {words.listed(better)}, worse in none"
    if steps:
        return "no significant change"
    return "no trend yet" if len(line.points) < 2 else "not tested"
