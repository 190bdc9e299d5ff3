"""Inner layers of every model as table rows (section 5.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.result import AuditResult, LayerRow
from audit.sinks import report_words as words

# Deep networks have hundreds of layers; those that an attack moves most are what a reader looks for.
_MOST_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class LayerText:
    """One layer in words; `None` numbers are empty."""

    name: str
    neurons: int
    dead: int
    sensitivity: str
    uncertainty: str
    absolute: str


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """The layers of one model, at most 20: those that the attack moves most, in the order in which they run; `left_out` others."""

    label: str
    threat: str
    rows: tuple[LayerText, ...]
    left_out: int


def layer_tables(result: AuditResult, labels: Sequence[str]) -> tuple[LayerTable, ...]:
    """One table per model whose layers were read."""
    return tuple(
        LayerTable(
            label=label,
            threat=words.threat_label(result.threats[0]),
            rows=tuple(map(_text, _chosen(model.layers))),
            left_out=max(0, len(model.layers) - _MOST_ROWS),
        )
        for model, label in zip(result.models, labels, strict=True)
        if model.layers
    )


def _chosen(layers: Sequence[LayerRow]) -> list[LayerRow]:
    moved = sorted(range(len(layers)), key=lambda place: -(layers[place].sensitivity or 0.0))
    return [layers[place] for place in sorted(moved[:_MOST_ROWS])]


def _text(row: LayerRow) -> LayerText:
    return LayerText(
        name=row.name,
        neurons=row.neurons,
        dead=row.dead,
        sensitivity=_number(row.sensitivity),
        uncertainty=_number(row.uncertainty),
        absolute=f"{_number(row.sensitivity_absolute) or 'not measured'}; {_number(row.uncertainty_absolute) or 'not measured'}",
    )


def _number(value: float | None) -> str:
    return "" if value is None else words.number(value)
