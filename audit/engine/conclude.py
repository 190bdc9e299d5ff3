"""From everything gathered on one subject to its ModelResult."""

from __future__ import annotations

from dataclasses import replace

from audit.data import Dataset
from audit.engine.certified import certified
from audit.engine.layers import layers
from audit.engine.measure import Gathered, check, measure
from audit.engine.subject import Subject
from audit.engine.summary import cascades, classes, curves, failures_total, passes_of, slices
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
    checks = check(store, replace(subject.facts, unavailable=unavailable))
    dimensions = scores(store, unavailable, {record.key: record for record in records}, checks, settings.threats)
    averaged = subject.plan.averaged
    forward, backward = (averaged * count for count in passes_of(store))
    identity = subject.classifier.identity
    sample = subject.gatherer.indices
    columns = {name: cells[sample] for name, cells in dataset.slices.items()}
    by_slice, without_slices = slices(store, columns, dataset.class_names, settings.threats[0])
    return ModelResult(
        identity=replace(identity, cautions=(*identity.cautions, *subject.cautions)),
        is_reference=subject.is_reference,
        metrics=records,
        scores=dimensions,
        overall=overall(dimensions),
        checks=checks,
        verdict=None,
        curves=curves(store, settings.threats),
        cascades=cascades(store, settings.threats, averaged),
        classes=classes(store, dataset.class_names, settings.threats[0]),
        failures=failures,
        failures_total=failures_total(store, settings.threats),
        slices=by_slice,
        layers=layers(store, settings.threats[0]),
        certified=certified(store),
        skipped={**subject.plan.left_out, **{str(key): error for key, error in gathered.failed.items()}, **without_slices},
        forward_passes=forward,
        backward_passes=backward,
        seconds=seconds,
    )
