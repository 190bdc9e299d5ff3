"""Every metric of every model as table rows, with notes, and the definitions behind them (sections 5 and 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.result import AuditResult, Measured, MetricRecord
from audit.sinks import report_words as words
from audit.sinks.report_words import Missing, ValueText
from audit.vocabulary import Better, Family

_ARROWS = {Better.HIGHER: "↑ higher", Better.LOWER: "↓ lower", Better.NEITHER: "– neither"}
_PARAGRAPHS = {"Reads as", "Undefined when", "Differs from the source in"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One model's outcome for one metric: a value, or the reason it is missing, with the marks of its notes."""

    label: str
    subject: bool
    value: ValueText | None
    missing: Missing | None
    notes: str


@dataclass(frozen=True, kw_only=True)
class MetricRow:
    """One metric for all models; `unit` and `better` in words."""

    key: str
    name: str
    symbol: str
    unit: str
    better: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True)
class MetricGroup:
    """The metrics of one family at one threat."""

    title: str
    rows: tuple[MetricRow, ...]


@dataclass(frozen=True, kw_only=True)
class MetricTables:
    """Every metric: the Fisher family apart, the other families, and the notes their letters point to."""

    fisher: tuple[MetricGroup, ...]
    others: tuple[MetricGroup, ...]
    notes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One metric's definition, as labelled paragraphs."""

    id: str
    name: str
    symbol: str
    paragraphs: tuple[tuple[str, str], ...]
    source: str
    paper_row: str | None


def metric_tables(result: AuditResult, labels: Sequence[str]) -> MetricTables:
    """Every metric of every model, in the result's order, grouped by family and threat."""
    letters: dict[str, str] = {}
    groups: dict[tuple[str, str], dict[str, MetricRow]] = {}
    first: dict[str, MetricRecord] = {}
    for model in result.models:
        for record in model.metrics:
            first.setdefault(record.key, record)
    # Letters follow the order of the page, where the Fisher family comes first.
    for key, record in sorted(first.items(), key=lambda item: item[1].family != Family.FISHER.value):
        cells = []
        for model, label in zip(result.models, labels, strict=True):
            cells.append(_cell(model.metric(key), label, not model.is_reference, letters))
        unit = next((cell.value.unit for cell in cells if cell.value), "")
        row = MetricRow(
            key=key, name=record.name, symbol=symbol(record.symbol), unit=unit, better=_ARROWS[record.better], cells=tuple(cells)
        )
        groups.setdefault((record.family, record.threat or ""), {})[key] = row
    order = {family.value: place for place, family in enumerate(Family)}
    built = [
        (
            family,
            MetricGroup(
                title=f"{family}, {words.threat_label(threat)}" if threat else family,
                rows=tuple(rows.values()),
            ),
        )
        for (family, threat), rows in sorted(groups.items(), key=lambda item: order.get(item[0][0], len(order)))
    ]
    fisher = Family.FISHER.value
    return MetricTables(
        fisher=tuple(group for family, group in built if family == fisher),
        others=tuple(group for family, group in built if family != fisher),
        notes=tuple((letter, words.sentence(note)) for note, letter in letters.items()),
    )


def _cell(record: MetricRecord | None, label: str, subject: bool, letters: dict[str, str]) -> Cell:
    if record is None:
        reason = Missing(kind="Not measured", because="this model's result does not list it")
        return Cell(label=label, subject=subject, value=None, missing=reason, notes="")
    outcome = record.outcome
    value = words.value_text(record, outcome) if isinstance(outcome, Measured) else None
    marks = [letters.setdefault(note, _letter(len(letters))) for note in record.notes]
    return Cell(label=label, subject=subject, value=value, missing=words.missing(outcome), notes=" ".join(marks))


def symbol(text: str) -> str:
    """A symbol as fonts can set it: a hat, which few place well, becomes a word."""
    return text.replace("\u0302", " est.")


def _letter(index: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    head, tail = divmod(index, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)


def definitions(result: AuditResult) -> tuple[Definition, ...]:
    """Every metric once, in the result's order."""
    first: dict[str, MetricRecord] = {}
    for model in result.models:
        for record in model.metrics:
            first.setdefault(record.id, record)
    return tuple(
        Definition(
            id=record.id,
            name=record.name,
            symbol=symbol(record.symbol),
            paragraphs=_paragraphs(record.definition, record.name),
            source=record.source,
            paper_row=record.paper_row,
        )
        for record in first.values()
    )


def _paragraphs(text: str, name: str) -> tuple[tuple[str, str], ...]:
    """A docstring as (label, text): `Reads as:` and its like begin a paragraph of their own; the name is not repeated."""
    paragraphs: list[list[str]] = []
    for line in text.strip().splitlines():
        label, colon, rest = line.strip().partition(":")
        if colon and label in _PARAGRAPHS:
            paragraphs.append([label, rest.strip()])
        elif not line.strip() or not paragraphs:
            paragraphs.append(["", line.strip()])
        else:
            paragraphs[-1][1] = f"{paragraphs[-1][1]} {line.strip()}".strip()
    return tuple(
        (label, words.sentence(body))
        for label, body in paragraphs
        if body and not (label == "" and body.rstrip(".") == name.rstrip("."))
    )
