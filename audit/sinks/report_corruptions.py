"""Corruptions and confidence in the report: a heat map of errors, accuracy by severity, reliability, and a few mistakes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from audit.evidence import MADE_HERE
from audit.result import AuditResult, CorruptionExample, CorruptionTable, Measured, ModelResult, Undefined
from audit.sinks import figures
from audit.sinks import report_words as words
from audit.sinks.report_gallery import data_uri, read_image
from audit.sinks.report_panels import Panel, Panels

# Shades of the heat map; the last one stands for every answer wrong.
_SHADES = 6
_SEVERITIES = np.arange(6.0)


@dataclass(frozen=True, kw_only=True)
class HeatCell:
    """One share of wrong answers in percent, its interval, and its shade from 0 to 5."""

    value: str
    interval: str
    shade: int


@dataclass(frozen=True, kw_only=True)
class HeatRow:
    """One kind: its five severities, and their mean."""

    kind: str
    cells: tuple[HeatCell, ...]
    mean: str
    extra: bool
    note: str


@dataclass(frozen=True, kw_only=True)
class HeatTable:
    """The errors of one model under every kind and severity."""

    label: str
    subject: bool
    caption: str
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One corrupted image that is taken for something else, with both images as data: URIs, where they were kept."""

    heading: str
    line: str
    clean: str | None
    corrupted: str | None
    label: str


@dataclass(frozen=True, kw_only=True)
class CorruptionView:
    """What the report shows of corruptions and of confidence; `made` says what was done to the images."""

    made: str
    tables: tuple[HeatTable, ...]
    panels: Panels
    reliability: Panels
    mistakes: tuple[Mistake, ...]


def corruption_view(result: AuditResult, labels: Sequence[str], folder: Path) -> CorruptionView:
    """Everything that was measured of it; empty for results without corruptions."""
    tables = tuple(
        _heat(model.corruptions, label, subject=not model.is_reference)
        for model, label in zip(result.models, labels, strict=True)
        if model.corruptions is not None
    )
    return CorruptionView(
        made=_made({model.corruptions.source for model in result.models if model.corruptions is not None}),
        tables=tables,
        panels=_severity_panel(result, labels),
        reliability=Panels(
            drawn=tuple(
                _reliability_panel(model, label, index)
                for index, (model, label) in enumerate(zip(result.models, labels, strict=True))
                if model.reliability
            ),
            left_out=(),
        ),
        mistakes=tuple(
            _mistake(example, label, folder, named=len(labels) > 1)
            for model, label in zip(result.models, labels, strict=True)
            if not model.is_reference
            for example in model.corruption_examples
        ),
    )


def _made(sources: Collection[str]) -> str:
    """What was done to the images: by this tool with the published parameters, or by others."""
    read = sorted(source for source in sources if source != MADE_HERE)
    if read:
        return f"Images of {words.listed(read)}, at five severities."
    return (
        "Nineteen kinds of disturbance at five severities, with the published parameters; frost is procedural and differs from the "
        "source."
    )


def kind_words(kind: str) -> str:
    """A kind as a reader sees it: `gaussian noise`, `JPEG compression`."""
    return kind.replace("_", " ").replace("jpeg", "JPEG").replace("gaussian", "Gaussian")


def _heat(table: CorruptionTable, label: str, *, subject: bool) -> HeatTable:
    rows = tuple(
        HeatRow(
            kind=kind_words(row.kind),
            cells=tuple(
                HeatCell(
                    value=words.percent(error),
                    interval=f"{words.percent(low)} to {words.percent(high)}",
                    shade=min(_SHADES - 1, int(error * _SHADES)),
                )
                for error, low, high in zip(row.errors, row.low, row.high, strict=True)
            ),
            mean=words.percent(sum(row.errors) / len(row.errors)),
            extra=not row.averaged,
            note=row.note,
        )
        for row in table.rows
    )
    return HeatTable(
        label=label,
        subject=subject,
        caption=f"Wrong answers in percent by kind and severity, n\u00a0=\u00a0{table.samples}; "
        f"{words.percent(table.clean_error)}\u00a0% without corruption.",
        rows=rows,
    )


def _severity_series(model: ModelResult, label: str) -> figures.Series | None:
    table = model.corruptions
    averaged = [row for row in table.rows if row.averaged] if table is not None else []
    records = [model.metric(f"corruption_error_by_severity/severity_{severity}") for severity in range(1, 6)]
    outcomes = [None if record is None else record.outcome for record in records]
    # A folder that lacks kinds has a table, but no means.
    if table is None or not averaged or any(isinstance(outcome, Undefined) for outcome in outcomes):
        return None
    errors = np.mean([row.errors for row in averaged], axis=0)
    intervals = [outcome.interval if isinstance(outcome, Measured) else None for outcome in outcomes]
    y = 100 * (1 - np.concatenate([[table.clean_error], errors]))
    known = [interval for interval in intervals if interval is not None]
    low = high = None
    if len(known) == len(intervals):
        low = np.concatenate([y[:1], [100 * (1 - interval.high) for interval in known]])
        high = np.concatenate([y[:1], [100 * (1 - interval.low) for interval in known]])
    return figures.Series(label=label, subject=not model.is_reference, x=_SEVERITIES, y=y, low=low, high=high)


def _severity_panel(result: AuditResult, labels: Sequence[str]) -> Panels:
    series = [
        found for model, label in zip(result.models, labels, strict=True) if (found := _severity_series(model, label)) is not None
    ]
    if not series:
        return Panels(drawn=(), left_out=())
    lost = max(series, key=lambda item: float(item.y[0] - item.y[-1]))
    spoken = "; ".join(f"{item.label}: " + ", ".join(f"{value:.0f} %" for value in item.y) for item in series)
    svg = figures.accuracy_epsilon(
        series,
        mark=None,
        mark_label="",
        chance=100 / max(1, result.models[0].identity.classes),
        x_label="severity; 0 is without corruption",
        key="severity",
        alt=f"Accuracy against severity of corruption, from 0 to 5. {spoken}.",
    )
    return Panels(
        drawn=(
            Panel(
                say=f"{lost.label} falls from {lost.y[0]:.0f} to {lost.y[-1]:.0f}\u00a0% at the highest severity.",
                what="Accuracy over the benchmark's 15 kinds against severity. Bands: 95\u00a0% bootstrap over images.",
                svg=svg,
            ),
        ),
        left_out=(),
    )


def _reliability_panel(model: ModelResult, label: str, index: int) -> Panel:
    shown = [diagram for place, diagram in enumerate(model.reliability) if place < 3]
    series = [figures.Series(label="calibrated", subject=False, x=np.array([0.0, 1.0]), y=np.array([0.0, 100.0]))]
    for diagram in shown:
        series.append(
            figures.Series(
                label=words.readable(diagram.images).partition(",")[0],
                subject=True,
                x=np.array([each.confidence for each in diagram.bins]),
                y=np.array([100 * each.accuracy for each in diagram.bins]),
            )
        )
    spoken = "; ".join(
        f"{diagram.images}: " + ", ".join(f"{100 * each.accuracy:.0f} % at {each.confidence:.2f}" for each in diagram.bins)
        for diagram in shown
    )
    return Panel(
        say=f"Confidence of {label} and how often it is right.",
        what="Accuracy against confidence, in bins of equal size. On the straight line a model is as often right as it says.",
        svg=figures.accuracy_epsilon(
            series,
            mark=None,
            mark_label="",
            chance=None,
            x_label="confidence",
            key=f"reliability{index}",
            alt=f"Reliability diagram of {label}. {spoken}.",
        ),
    )


def _mistake(example: CorruptionExample, label: str, folder: Path, *, named: bool) -> Mistake:
    images = [None if name is None else read_image(folder, name) for name in (example.clean_image, example.corrupted_image)]
    clean, corrupted = (None if image is None else data_uri(image) for image in images)
    sure = "" if example.confidence is None else f" with probability {example.confidence:.2f}"
    who = f"{label}: " if named else ""
    return Mistake(
        heading=f"{kind_words(example.kind)}, severity {example.severity}",
        line=f"{who}{words.clipped(example.label, 40)} is taken for {words.clipped(example.answered, 40)}{sure}. "
        f"Image {words.clipped(example.example_id, 60)}.",
        clean=clean,
        corrupted=corrupted,
        label=words.clipped(example.label, 40),
    )
