"""Accuracy against epsilon, classes, cascades, rankings and honesty checks, as the tables of sections 5, 6 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.result import AuditResult, Cascade, ClassRow, Curve, ModelResult, PairTest, Ranking
from audit.sinks import report_words as words
from audit.vocabulary import Unit

# More rows than a reader compares; the rest stays in result.json.
CLASSES_SHOWN = 30
SIGNIFICANT = 0.05


@dataclass(frozen=True, kw_only=True)
class EpsilonRow:
    """One model's accuracies in percent with their intervals, aligned with the table's epsilons; None where not measured."""

    label: str
    subject: bool
    cells: tuple[tuple[str, str] | None, ...]


@dataclass(frozen=True, kw_only=True)
class EpsilonTable:
    """The numbers behind one accuracy-epsilon figure."""

    caption: str
    epsilons: tuple[str, ...]
    rows: tuple[EpsilonRow, ...]
    curves: tuple[tuple[int, Curve], ...]


@dataclass(frozen=True, kw_only=True)
class ClassTable:
    """One model's classes, or its slices by one column of the data; weakest under attack first."""

    what: str
    label: str
    subject: bool
    rows: tuple[ClassRow, ...]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class StageRow:
    """One line of a cascade: what saw how many images, broke how many, and left how many."""

    name: str
    images_in: int
    broken: int
    survivors: int


@dataclass(frozen=True, kw_only=True)
class CascadeTable:
    """One model's cascade at one threat."""

    label: str
    caption: str
    rows: tuple[StageRow, ...]
    passes: str


@dataclass(frozen=True, kw_only=True)
class PairRow:
    """One paired test between two models."""

    first: str
    second: str
    test: PairTest
    p_value: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class RankingTable:
    """One ranking in words; `rows` are (rank, label, subject, value, interval)."""

    title: str
    ranking: Ranking
    rows: tuple[tuple[str, str, bool, str, str], ...]
    pairs: tuple[PairRow, ...]
    detectable: str


@dataclass(frozen=True, kw_only=True)
class CheckRow:
    """One honesty check over all models; `found` holds (status, label or "", what was found)."""

    number: int
    title: str
    status: str
    found: tuple[tuple[str, str, str], ...]
    raised_if: str
    means: str
    do: str


def epsilon_tables(result: AuditResult, labels: Sequence[str]) -> tuple[EpsilonTable, ...]:
    """One table per norm, threat and arm, over all models that have the curve."""
    grouped: dict[tuple[str, str, str], list[tuple[int, Curve]]] = {}
    for index, model in enumerate(result.models):
        for curve in model.curves:
            if curve.points:
                grouped.setdefault((curve.norm, curve.threat, curve.arm), []).append((index, curve))
    tables = []
    for (norm, _, arm), curves in grouped.items():
        epsilons = sorted({point.epsilon for _, curve in curves for point in curve.points})
        rows = []
        for index, curve in curves:
            points = {point.epsilon: point for point in curve.points}
            cells = tuple(
                None if (point := points.get(epsilon)) is None
                else (words.percent(point.accuracy), f"{words.percent(point.low)} to {words.percent(point.high)}")
                for epsilon in epsilons
            )  # fmt: skip
            rows.append(EpsilonRow(label=labels[index], subject=not result.models[index].is_reference, cells=cells))
        samples = sorted({curve.samples for _, curve in curves})
        tables.append(
            EpsilonTable(
                caption=f"Accuracy in % under {arm} attack, {words.norm_label(norm)}, 95 % intervals, "
                f"n\u00a0=\u00a0{words.listed([str(count) for count in samples])}.",
                epsilons=tuple(words.epsilon_text(norm, epsilon) for epsilon in epsilons),
                rows=tuple(rows),
                curves=tuple(curves),
            )
        )
    return tuple(tables)


def class_tables(result: AuditResult, labels: Sequence[str]) -> tuple[ClassTable, ...]:
    """Per model: classes by accuracy under attack (clean accuracy where there is none), weakest first."""
    return tuple(
        _class_table("Class", model, label, model.classes)
        for model, label in zip(result.models, labels, strict=True)
        if model.classes
    )


def slice_tables(result: AuditResult, labels: Sequence[str]) -> tuple[ClassTable, ...]:
    """Per column of the data and model, the same of its values."""
    columns = dict.fromkeys(column for model in result.models for column in model.slices)
    return tuple(
        _class_table(column, model, label, model.slices[column])
        for column in columns
        for model, label in zip(result.models, labels, strict=True)
        if column in model.slices
    )


def _class_table(what: str, model: ModelResult, label: str, rows: tuple[ClassRow, ...]) -> ClassTable:
    def weakest_first(row: ClassRow) -> tuple[bool, float]:
        return row.samples == 0, row.robust if row.robust is not None else row.clean if row.clean is not None else 1.0

    return ClassTable(
        what=what,
        label=label,
        subject=not model.is_reference,
        rows=tuple(sorted(rows, key=weakest_first)[:CLASSES_SHOWN]),
        left_out=max(0, len(rows) - CLASSES_SHOWN),
    )


def cascade_tables(result: AuditResult, labels: Sequence[str]) -> tuple[CascadeTable, ...]:
    """Which attack broke how many images; unknown ones are counted as not robust."""
    return tuple(_cascade(cascade, label) for model, label in zip(result.models, labels, strict=True) for cascade in model.cascades)


def _cascade(cascade: Cascade, label: str) -> CascadeTable:
    left = cascade.samples - cascade.natural_errors
    rows = [StageRow(name="wrong without any attack", images_in=cascade.samples, broken=cascade.natural_errors, survivors=left)]
    for stage in cascade.stages:
        left -= stage.broken
        rows.append(StageRow(name=stage.attack, images_in=stage.images_in, broken=stage.broken, survivors=left))
    if cascade.unknown:
        rows.append(
            StageRow(name="unknown, counted as not robust", images_in=left, broken=cascade.unknown, survivors=cascade.survivors)
        )
    return CascadeTable(
        label=label,
        caption=f"{cascade.arm[:1].upper()}{cascade.arm[1:]}, {words.threat_label(cascade.threat)}",
        rows=tuple(rows),
        passes=f"n\u00a0=\u00a0{cascade.samples}. {words.number(cascade.forward_passes_per_image)} forward and "
        f"{words.number(cascade.backward_passes_per_image)} backward passes per image on average."
        + ("" if cascade.escalated is None else f" The longest search, because gradients were not believed: {cascade.escalated}."),
    )


def ranking_tables(result: AuditResult, labels: Sequence[str]) -> tuple[RankingTable, ...]:
    """One ranking per dimension with its paired tests; a single model is not ranked."""
    tables = []
    for ranking in result.rankings:
        if len(ranking.rows) < 2:
            continue
        record = next((found for model in result.models if (found := model.metric(ranking.metric))), None)
        share = record is None or record.unit == Unit.SHARE.value
        write = words.percent if share else words.number
        rows = tuple(
            (
                str(row.rank_low) if row.rank_low == row.rank_high else f"{row.rank_low}–{row.rank_high}",
                labels[row.model],
                not result.models[row.model].is_reference,
                write(row.value),
                f"{write(row.low)} to {write(row.high)}",
            )
            for row in ranking.rows
        )
        named = record.name if record else ranking.dimension
        threat = f", {words.threat_label(record.threat)}" if record and record.threat else ""
        detectable = ""
        if ranking.smallest_detectable is not None:
            detectable = (
                f"The smallest difference this sample could have shown: {words.percent(ranking.smallest_detectable)} points."
            )
        tables.append(
            RankingTable(
                title=f"{named}{threat}" + (", %" if share else ""),
                ranking=ranking,
                rows=rows,
                pairs=tuple(_pair(test, labels) for test in ranking.tests),
                detectable=detectable,
            )
        )
    return tuple(tables)


def ranking_gaps(result: AuditResult, labels: Sequence[str]) -> tuple[str, ...]:
    """Which models each ranking leaves out, and why."""
    return tuple(
        f"{ranking.dimension}: {labels[missing.model]} is not ranked, because {missing.because}."
        for ranking in result.rankings
        for missing in ranking.left_out
    )


def _pair(test: PairTest, labels: Sequence[str]) -> PairRow:
    first, second, p = labels[test.first], labels[test.second], test.adjusted_p_value
    better = first if test.only_first > test.only_second else second
    sentence = f"{better} is better" if p < SIGNIFICANT else "not told apart"
    return PairRow(
        first=first, second=second, test=test, p_value="< 0.001" if p < 0.001 else words.fixed(min(p, 1.0), 3), sentence=sentence
    )


def check_rows(result: AuditResult, labels: Sequence[str]) -> tuple[CheckRow, ...]:
    """Raised checks first, then those not run, then those passed; equal findings of several models once."""
    order = ("warn", "not_run", "pass")
    numbers = sorted({check.number for model in result.models for check in model.checks})
    rows = []
    for number in numbers:
        checks = [
            (check, label)
            for model, label in zip(result.models, labels, strict=True)
            for check in model.checks
            if check.number == number
        ]
        same = len({(check.status, check.found) for check, _ in checks}) == 1 and len(checks) == len(labels)
        found = [(check.status, "" if same else label, words.sentence(check.found)) for check, label in checks]
        text = checks[0][0]
        rows.append(
            CheckRow(
                number=number,
                title=text.title,
                status=min((check.status for check, _ in checks), key=order.index),
                found=tuple(sorted(found[:1] if same else found, key=lambda item: order.index(item[0]))),
                raised_if=words.sentence(text.raised_if),
                means=words.sentence(text.means),
                do=words.sentence(text.do),
            )
        )
    return tuple(sorted(rows, key=lambda row: (order.index(row.status), row.number)))
