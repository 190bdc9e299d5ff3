"""From everything gathered on one subject to its ModelResult."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.data import Dataset
from audit.engine.certified import certified
from audit.engine.layers import layers
from audit.engine.measure import Gathered, check, measure
from audit.engine.subject import Subject
from audit.engine.summary import cascades, classes, curves, failures_total, passes_of, slices
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, FisherEstimate
from audit.metrics.scores import overall, scores
from audit.result import FailureExample, ModelResult
from audit.settings import Settings

# Above this share of the examples the report says that the outputs are not smooth.
MOST_NOT_SMOOTH = 0.10


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
        identity=replace(identity, cautions=(*identity.cautions, *subject.cautions, *not_smooth(store))),
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


def not_smooth(store: EvidenceStore) -> tuple[str, ...]:
    """What to be careful about where outputs do not change in proportion to a small step."""
    key = EvidenceKey(kind=Evidence.FISHER_ESTIMATE)
    status = store.get_as(FisherEstimate, key).status if key in store else np.zeros(0, dtype=np.str_)
    rough = int((status == "not_smooth").sum())
    if rough <= MOST_NOT_SMOOTH * len(status):
        return ()
    return (
        f"The outputs are not smooth around {rough} of {len(status)} examples: they do not change in proportion to a small step, "
        "as with rounded or quantised outputs. Estimates from queries leave these examples out, and gradients may mislead.",
    )
