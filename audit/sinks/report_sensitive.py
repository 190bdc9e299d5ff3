"""The most sensitive images in the report: cards with the image and its top direction, or a table where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.result import AuditResult, SensitiveExample
from audit.sinks import report_words as words
from audit.sinks.report_gallery import data_uri, read_image

# Shared among the models, which show two each at least.
SHOWN = 24
_STATUS = {"estimated": "estimated from queries"}


@dataclass(frozen=True, kw_only=True)
class SensitiveCard:
    """One image in words; `clean` and `direction` are data: URIs, None together."""

    model_label: str
    example_id: str
    label: str
    predicted: str
    confidence: float | None
    lambda_max: str
    effective_rank: str
    status: str
    clean: str | None
    direction: str | None


@dataclass(frozen=True, kw_only=True)
class SensitiveTable:
    """One model's images of largest λ, without pictures."""

    label: str
    rows: tuple[SensitiveCard, ...]


@dataclass(frozen=True, kw_only=True)
class SensitiveView:
    """What the report shows: cards with pictures, and tables of the models that have none."""

    cards: tuple[SensitiveCard, ...]
    tables: tuple[SensitiveTable, ...]


def sensitive_view(result: AuditResult, labels: Sequence[str], folder: Path) -> SensitiveView:
    """The images of largest λ of the audited models; images are read from `folder`."""
    having = [
        (model, label)
        for model, label in zip(result.models, labels, strict=True)
        if model.sensitive_examples and not model.is_reference
    ]
    each = max(2, SHOWN // max(1, len(having)))
    cards: list[SensitiveCard] = []
    tables = []
    for model, label in having:
        found = tuple(_card(example, label, folder) for example in model.sensitive_examples[:each])
        if any(card.clean is None for card in found):
            tables.append(SensitiveTable(label=label, rows=found))
        else:
            cards += found
    return SensitiveView(cards=tuple(cards), tables=tuple(tables))


def _card(example: SensitiveExample, label: str, folder: Path) -> SensitiveCard:
    images = [None if name is None else read_image(folder, name) for name in (example.clean_image, example.direction_image)]
    clean, direction = (None if image is None else data_uri(image) for image in images)
    both = clean is not None and direction is not None
    return SensitiveCard(
        model_label=label,
        example_id=words.clipped(example.example_id, 60),
        label=words.clipped(example.label, 40),
        predicted=words.clipped(example.predicted, 40),
        confidence=example.confidence,
        lambda_max=words.number(example.lambda_max),
        effective_rank=words.number(example.effective_rank),
        status=_STATUS.get(example.status, words.clipped(example.status, 40)),
        clean=clean if both else None,
        direction=direction if both else None,
    )
