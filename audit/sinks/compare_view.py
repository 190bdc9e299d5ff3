"""A comparison in words: what the terminal prints and the page shows, line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audit.compare import VERDICTS, Comparison, Pair, Row, Subject
from audit.result import Measured, Outcome, Ranking
from audit.sinks import report_words as words
from audit.vocabulary import Unit

NOT_MEASURED = "none"


@dataclass(frozen=True, kw_only=True)
class Value:
    """One model's value on its own examples; `interval` says why there is none where there is none."""

    letter: str
    value: str
    interval: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One metric of one model against the baseline.

    Differences of shares are in percentage points. `counts` are the examples right in the model only and in the baseline only.
    """

    row: Row
    pair: Pair
    letter: str
    title: str
    direction: str
    values: tuple[Value, Value]
    difference: str
    interval: str
    samples: str
    counts: str
    p_value: str

    @property
    def verdict(self) -> str:
        """The verdict word."""
        return self.pair.verdict


@dataclass(frozen=True, kw_only=True)
class Who:
    """One compared model as the reader identifies it."""

    letter: str
    label: str
    digest: str
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Known:
    """An obstacle in words; `metrics` are the keys that it left without a difference."""

    letter: str
    what: str
    because: str
    still: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Metrics of one or several models without a difference, for a reason of their own."""

    letters: str
    because: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """One ranking: its title and one line per model, best first, as (rank, letter, label, value, interval)."""

    title: str
    rows: tuple[tuple[str, str, str, str, str], ...]
    detectable: str


@dataclass(frozen=True, kw_only=True)
class CompareView:
    """The whole comparison in words; `findings` holds one sentence per compared model."""

    title: str
    who: tuple[Who, ...]
    findings: tuple[str, ...]
    lines: tuple[Line, ...]
    known: tuple[Known, ...]
    gaps: tuple[Gap, ...]
    ranks: tuple[Ranks, ...]
    claims: int


def view(comparison: Comparison) -> CompareView:
    """The comparison in words, worst news first."""
    subjects = comparison.subjects
    reasons = {(barrier.model, barrier.obstacle.because) for barrier in comparison.barriers}
    gaps = comparison.gaps
    lines = tuple(_line(row, pair, subjects) for row, pair in comparison.worst_first)
    return CompareView(
        title=words.listed([f"{subject.letter}: {subject.label}" for subject in subjects]),
        who=tuple(map(_who, subjects)),
        findings=tuple(_finding(subject, subjects[0], lines) for subject in subjects[1:]),
        lines=lines,
        known=tuple(
            Known(
                letter=subjects[barrier.model].letter,
                what=barrier.obstacle.what,
                because=words.sentence(barrier.obstacle.because),
                still=barrier.obstacle.still,
                metrics=gaps.get((barrier.model, barrier.obstacle.because), ()),
            )
            for barrier in comparison.barriers
        ),
        gaps=_gaps({place: keys for place, keys in gaps.items() if place not in reasons}, subjects),
        ranks=tuple(_ranks(ranking, subjects) for ranking in comparison.rankings),
        claims=comparison.claims,
    )


def _who(subject: Subject) -> Who:
    return Who(
        letter=subject.letter,
        label=subject.label,
        digest=subject.digest.removeprefix("sha256:")[:12],
        facts=(
            words.day(subject.created),
            f"n{words.NO_BREAK}={words.NO_BREAK}{words.grouped(subject.samples)}",
            f"profile {subject.profile}",
            f"{subject.data} ({subject.data_digest.removeprefix('sha256:')[:12]})",
            subject.source,
        ),
    )


def _gaps(found: Mapping[tuple[int, str], tuple[str, ...]], subjects: tuple[Subject, ...]) -> tuple[Gap, ...]:
    """One entry where several models lack the same metrics for the same reason."""
    letters: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (model, because), keys in found.items():
        letters.setdefault((because, keys), []).append(subjects[model].letter)
    return tuple(
        Gap(letters=words.listed(models), because=words.clause(because), metrics=keys)
        for (because, keys), models in letters.items()
    )


def _finding(subject: Subject, baseline: Subject, lines: tuple[Line, ...]) -> str:
    counts = {word: sum(line.letter == subject.letter and line.verdict == word for line in lines) for word in VERDICTS}
    if not any(line.letter == subject.letter for line in lines):
        return f"Nothing of {subject.letter} could be compared with {baseline.letter}."
    return (
        f"{subject.letter} is worse than {baseline.letter} in {words.counted(counts['worse'], 'metric')} and better in "
        f"{words.grouped(counts['better'])}; in {words.grouped(counts['not told apart'])} they are not told apart."
    )


def _line(row: Row, pair: Pair, subjects: tuple[Subject, ...]) -> Line:
    difference = pair.difference
    if difference is None:
        raise ValueError("a line needs a difference")
    where, counts = row.variant or row.threat, difference.counts
    unit = "" if row.unit in {Unit.SHARE.value, Unit.POINTS.value} else _suffix(row, where)
    low, high = (_signed(end, row.unit, where) for end in (difference.interval.low, difference.interval.high))
    threat = f", {words.threat_label(row.threat)}" if row.threat else ""
    unit_name = words.unit_word(row.unit, where)
    better = {"higher": "higher is better", "lower": "lower is better"}.get(row.better.value, "neither direction is better")
    other = subjects[pair.model]
    return Line(
        row=row,
        pair=pair,
        letter=other.letter,
        title=f"{row.name}{threat}",
        direction=better if not unit_name or unit_name[0] in "%/" else f"{unit_name}; {better}",
        values=(_value(subjects[0], row.values[0], row), _value(other, row.values[pair.model], row)),
        difference=f"{_signed(difference.value, row.unit, where)}{unit}",
        interval=f"{low} to {high}",
        samples=words.grouped(difference.samples),
        counts="" if counts is None else f"{words.grouped(counts.only_first)} : {words.grouped(counts.only_second)}",
        p_value="" if pair.adjusted_p_value is None else _p(pair.adjusted_p_value),
    )


def _value(subject: Subject, outcome: Outcome, row: Row) -> Value:
    where = row.variant or row.threat
    if not isinstance(outcome, Measured):
        return Value(letter=subject.letter, value=NOT_MEASURED, interval="")
    ends = outcome.interval
    return Value(
        letter=subject.letter,
        value=f"{words.written(outcome.value, row.unit, where)}{_suffix(row, where)}",
        interval=f"no interval: {outcome.why_no_interval}"
        if ends is None
        else f"{words.written(ends.low, row.unit, where)} to {words.written(ends.high, row.unit, where)}",
    )


def _suffix(row: Row, where: str | None) -> str:
    """What follows a number at once: percent or grey levels; other units stand beside the metric's name."""
    unit = words.unit_word(row.unit, where)
    return f"{words.NO_BREAK}%" if unit == "%" else unit if unit.startswith("/") else ""


def _signed(value: float, unit: str, where: str | None) -> str:
    text = words.written(value, unit, where)
    return f"+{text}" if text.strip("0.") and not text.startswith(words.MINUS) else text


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else words.fixed(value, 3)


def _ranks(ranking: Ranking, subjects: tuple[Subject, ...]) -> Ranks:
    detectable = ranking.smallest_detectable
    return Ranks(
        title=f"{ranking.dimension}, n{words.NO_BREAK}={words.NO_BREAK}{words.grouped(ranking.samples)}",
        rows=tuple(
            (
                str(row.rank_low) if row.rank_low == row.rank_high else f"{row.rank_low} to {row.rank_high}",
                subjects[row.model].letter,
                subjects[row.model].label,
                f"{words.percent(row.value)}{words.NO_BREAK}%",
                f"{words.percent(row.low)} to {words.percent(row.high)}",
            )
            for row in ranking.rows
        ),
        detectable=""
        if detectable is None
        else f"The smallest difference this sample could have shown: {words.percent(detectable)} points.",
    )
