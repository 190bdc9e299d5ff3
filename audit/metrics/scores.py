"""A score per dimension, 0 to 100, and the overall score: the weakest dimension, never an average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from audit import statistics
from audit.errors import Undefined as NoValue
from audit.evidence import Corruptions, Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.metrics.corruption import kept_under_corruption
from audit.metrics.findings import predictions_of
from audit.metrics.spec import key_of
from audit.result import (
    CheckRecord,
    Failed,
    Interval,
    Measured,
    MetricRecord,
    NotApplicable,
    Outcome,
    OverallScore,
    ScoreRecord,
    Undefined,
)
from audit.vocabulary import Threat

VOIDING_CHECKS = (9, 15)
# Per arm the metric's id, and the arm's name where a score stands for it.
ARMS = {
    Evidence.WORST_CASE_WHITE_BOX: ("adversarial_accuracy_white_box", "white-box"),
    Evidence.WORST_CASE_BLACK_BOX: ("adversarial_accuracy_black_box", "query-only"),
}


def _scaled(outcome: Outcome) -> Outcome:
    if not isinstance(outcome, Measured):
        return outcome
    interval = outcome.interval
    return Measured(
        value=100 * outcome.value,
        samples=outcome.samples,
        interval=None if interval is None else Interval(low=100 * interval.low, high=100 * interval.high, method=interval.method),
        why_no_interval=outcome.why_no_interval,
    )


def _adversarial(
    store: EvidenceStore, skipped: Mapping[EvidenceKey, str], metrics: Mapping[str, MetricRecord], threat: Threat
) -> ScoreRecord:
    """AAW / CA, or AAB / CA where there is no white-box arm or it is the lower of the two (check 7).

    A white-box arm that FAILED leaves nothing measured: the query-only one would look like a stronger model.
    """
    found = [
        (store.get_as(WorstCase, key), arm)
        for kind, (_, arm) in ARMS.items()
        if (key := EvidenceKey(kind=kind, threat=threat)) in store
    ]
    outcomes = [metrics[key_of(metric, None, threat)].outcome for metric, _ in ARMS.values()]
    lost = (
        outcomes[0] if isinstance(outcomes[0], Failed) else outcomes[1] if isinstance(outcomes[1], Failed) and not found else None
    )
    if lost is not None or not found:
        because = skipped.get(EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=threat), "no attack was run")
        means, outcome = f"right answers that survive, {threat.label}", lost or NotApplicable(because=because)
        return ScoreRecord(dimension="adversarial", means=means, outcome=outcome, threat=str(threat))
    # min takes the first of equals, so that the white-box arm speaks unless the other broke more.
    evidence, arm = min(found, key=lambda pair: int(pair[0].robust.sum()))
    right, standing = int(evidence.clean_correct.sum()), int(evidence.robust.sum())
    return ScoreRecord(
        dimension="adversarial",
        means=f"right answers that survive the worst {arm} attack, {threat.label}",
        outcome=_scaled(Measured(value=standing / right, samples=right, interval=statistics.proportion(standing, right)))
        if right
        else Undefined(because="no clean image is classified correctly"),
        threat=str(threat),
    )


def _local_margin(metrics: Mapping[str, MetricRecord], checks: tuple[CheckRecord, ...], threat: Threat) -> ScoreRecord:
    outcome = metrics[key_of("linearised_margin_share", None, threat)].outcome
    voiding = [check.number for check in checks if check.number in VOIDING_CHECKS and check.status == "warn"]
    if isinstance(outcome, Measured) and voiding:
        raised = " and ".join(f"check {number}" for number in voiding)
        outcome = Undefined(because=f"honesty {raised} is raised, which voids the linearised margin")
    return ScoreRecord(
        dimension="local margin",
        means=f"images, of those with Fisher evidence, whose linearised margin exceeds {threat.label}",
        outcome=_scaled(outcome),
        threat=str(threat),
    )


def _corruption(store: EvidenceStore, metrics: Mapping[str, MetricRecord]) -> ScoreRecord:
    """Mean accuracy under corruptions / CA on the same examples, capped at 1."""
    key = EvidenceKey(kind=Evidence.CORRUPTIONS)
    outcome = metrics["unnormalised_mean_corruption_error"].outcome
    if key in store and isinstance(outcome, Measured):
        outcome = _kept(store.get_as(Corruptions, key), store)
    return ScoreRecord(dimension="corruption", means="right answers kept under corruptions", outcome=_scaled(outcome))


def _kept(evidence: Corruptions, store: EvidenceStore) -> Outcome:
    try:
        kept, clean = kept_under_corruption(evidence, predictions_of(store).correct)
    except NoValue as reason:
        return Undefined(because=str(reason))
    if clean.sum() == 0:
        return Undefined(because="no clean image is classified correctly")
    interval = statistics.over_examples(len(clean), lambda weights: np.minimum(1.0, (weights @ kept) / (weights @ clean)))
    few = len(clean) < statistics.SMALLEST_SAMPLE
    return Measured(
        value=min(1.0, float(kept.mean() / clean.mean())),
        samples=len(clean),
        interval=interval,
        why_no_interval=None if interval else statistics.TOO_FEW if few else "a resample has no right answer",
    )


def _stability(metrics: Mapping[str, MetricRecord]) -> ScoreRecord:
    """1 - mean flip probability."""
    outcome = metrics["mean_flip_probability"].outcome
    if isinstance(outcome, Measured):
        found = outcome.interval
        ends = None if found is None else replace(found, low=1 - found.high, high=1 - found.low)
        outcome = replace(outcome, value=1 - outcome.value, interval=ends)
    return ScoreRecord(dimension="stability", means="answers unchanged along sequences", outcome=_scaled(outcome))


def scores(
    store: EvidenceStore,
    skipped: Mapping[EvidenceKey, str],
    metrics: Mapping[str, MetricRecord],
    checks: tuple[CheckRecord, ...],
    threats: tuple[Threat, ...],
) -> tuple[ScoreRecord, ...]:
    """The dimensions of one model: clean, adversarial and local margin per threat, corruption, stability."""
    return (
        ScoreRecord(
            dimension="clean", means="right answers on unchanged images", outcome=_scaled(metrics["clean_accuracy"].outcome)
        ),
        *(_adversarial(store, skipped, metrics, threat) for threat in threats),
        *(_local_margin(metrics, checks, threat) for threat in threats),
        _corruption(store, metrics),
        _stability(metrics),
    )


def overall(dimensions: tuple[ScoreRecord, ...]) -> OverallScore:
    """The weakest measured dimension; with any dimension not measured it is only an upper bound.

    >>> clean = ScoreRecord(dimension="clean", means="", outcome=Measured(value=90.0, samples=1, why_no_interval="one"))
    >>> overall((clean, ScoreRecord(dimension="stability", means="", outcome=NotApplicable(because="")))).undetermined
    ('stability',)
    """
    measured = [(record.outcome.value, record.dimension) for record in dimensions if isinstance(record.outcome, Measured)]
    missing = tuple(dict.fromkeys(record.dimension for record in dimensions if not isinstance(record.outcome, Measured)))
    if not measured:
        return OverallScore(value=None, weakest=None, undetermined=missing)
    value, weakest = min(measured)
    return OverallScore(value=value, weakest=weakest, undetermined=missing)
