"""From everything gathered on one subject to its ModelResult."""

from __future__ import annotations

from audit.data import Dataset
from audit.engine.measure import Gathered, check, measure
from audit.engine.subject import Subject
from audit.engine.summary import cascades, classes, curves, failures_total
from audit.metrics.scores import overall, scores
from audit.result import FailureExample, ModelResult
from audit.settings import Settings


def conclude(
    subject: Subject,
    gathered: Gathered,
    dataset: Dataset,
    settings: Settings,
    failures: tuple[FailureExample, ...],
    seconds: float,
) -> ModelResult:
    """Measure the catalogue, check honesty, score; the verdict is the gate's and comes later."""
    store = gathered.store
    unavailable = {**subject.plan.skipped, **gathered.failed}
    records = measure(subject.plan, gathered)
    checks = check(store, subject.facts)
    dimensions = scores(store, unavailable, {record.key: record for record in records}, checks, settings.threats)
    return ModelResult(
        identity=subject.classifier.identity,
        is_reference=subject.is_reference,
        metrics=records,
        scores=dimensions,
        overall=overall(dimensions),
        checks=checks,
        verdict=None,
        curves=curves(store, settings.threats),
        cascades=cascades(store, settings.threats),
        classes=classes(store, dataset.class_names, settings.threats[0]),
        failures=failures,
        failures_total=failures_total(store, settings.threats),
        skipped={str(key): because for key, because in unavailable.items()},
        forward_passes=subject.classifier.forward_passes,
        backward_passes=subject.classifier.backward_passes,
        seconds=seconds,
    )
