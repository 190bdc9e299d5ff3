"""Evidence as the report tells it: curves, cascades, classes and failures. Counts of evidence, no new measurement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import scipy.special

from audit import statistics
from audit.evidence import (
    NATURAL_ERROR,
    OF_REFERENCE,
    UNKNOWN,
    AccuracyEpsilon,
    AdversarialNeurons,
    AnyEvidence,
    Bools,
    BoundaryDistance,
    BoundarySteps,
    Certification,
    Corruptions,
    Evidence,
    EvidenceKey,
    EvidenceStore,
    FisherEstimate,
    FisherSpectrum,
    GradientHealth,
    GradientProbe,
    Ints,
    NeuronProfile,
    Neurons,
    NoiseResponse,
    Predictions,
    Probe,
    ReferenceAttack,
    Sequences,
    ShownFailure,
    Strings,
    WorstCase,
)
from audit.result import AttackStage, Cascade, ClassRow, Curve, CurvePoint, FailureExample
from audit.text import printable
from audit.vocabulary import Threat

ARMS: Mapping[Evidence, str] = {
    Evidence.WORST_CASE_WHITE_BOX: "white-box",
    Evidence.WORST_CASE_BLACK_BOX: "black-box",
}
# A column with more values numbers the images rather than grouping them.
MOST_SLICES = 20
# What counts the passes of each example.
_COUNTED = (
    Probe | GradientProbe | ReferenceAttack | AdversarialNeurons | WorstCase | AccuracyEpsilon | BoundarySteps | NoiseResponse
)


def predictions_of(store: EvidenceStore) -> Predictions:
    """The clean predictions, which every audited model has."""
    return store.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))


def class_name(names: tuple[str, ...], index: int) -> str:
    """The name of a class; a model may know more classes than the data names."""
    return names[index] if 0 <= index < len(names) else str(index)


def strongest_arm(store: EvidenceStore, threat: Threat) -> tuple[str, WorstCase] | None:
    """The arm that left the fewest standing, the white-box one among equals; None without any."""
    keys = {arm: EvidenceKey(kind=kind, threat=threat) for kind, arm in ARMS.items()}
    found = [(arm, store.get_as(WorstCase, key)) for arm, key in keys.items() if key in store]
    return min(found, key=lambda pair: int(pair[1].robust.sum()), default=None)


def curves(store: EvidenceStore, threats: tuple[Threat, ...]) -> tuple[Curve, ...]:
    """One accuracy-epsilon curve per threat that has one."""
    found = []
    for threat in threats:
        key = EvidenceKey(kind=Evidence.ACCURACY_EPSILON, threat=threat)
        if key not in store:
            continue
        evidence = store.get_as(AccuracyEpsilon, key)
        samples = len(evidence.robust)
        points = []
        for index, epsilon in enumerate(evidence.epsilons):
            right = int(evidence.robust[:, index].sum())
            interval = statistics.proportion(right, samples)
            points.append(CurvePoint(epsilon=epsilon, accuracy=right / samples, low=interval.low, high=interval.high))
        found.append(Curve(norm=threat.norm.value, threat=str(threat), arm=evidence.arm, samples=samples, points=tuple(points)))
    return tuple(found)


def cascades(store: EvidenceStore, threats: tuple[Threat, ...], averaged: int = 1) -> tuple[Cascade, ...]:
    """Which attack broke how many, per threat and arm; each pass counts `averaged` times."""
    found = []
    for threat in threats:
        for kind, arm in ARMS.items():
            key = EvidenceKey(kind=kind, threat=threat)
            if key not in store:
                continue
            evidence = store.get_as(WorstCase, key)
            natural = int(np.sum(evidence.broken_by == NATURAL_ERROR))
            standing = len(evidence.state) - natural
            stages = []
            # At epsilon 0 there is nothing to attack, and no attack ran.
            for index, attack in enumerate(evidence.attacks if threat.epsilon > 0 else ()):
                broken = int(np.sum(evidence.broken_by == index))
                stages.append(AttackStage(attack=attack, images_in=standing, broken=broken))
                standing -= broken
            found.append(
                Cascade(
                    arm=arm,
                    threat=str(threat),
                    samples=len(evidence.state),
                    natural_errors=natural,
                    unknown=int(np.sum(evidence.state == UNKNOWN)),
                    survivors=int(evidence.robust.sum()),
                    forward_passes_per_image=averaged * float(evidence.forward_passes.mean()),
                    backward_passes_per_image=averaged * float(evidence.backward_passes.mean()),
                    stages=tuple(stages),
                    escalated=_escalated(store, threat) if kind is Evidence.WORST_CASE_WHITE_BOX else None,
                )
            )
    return tuple(found)


def _escalated(store: EvidenceStore, threat: Threat) -> str | None:
    """Why the white-box arm was a longer search than the profile's, or None."""
    key = EvidenceKey(kind=Evidence.GRADIENT_HEALTH, threat=threat)
    health = store.get_as(GradientHealth, key) if key in store else None
    return None if health is None or health.believed else "; ".join(health.reasons)


def classes(store: EvidenceStore, names: tuple[str, ...], threat: Threat) -> tuple[ClassRow, ...]:
    """Clean and worst-case accuracy per class under the first threat, classes without an example included."""
    labels = predictions_of(store).labels
    return tuple(_class_row(store, name, labels == index, names, threat) for index, name in enumerate(names))


def slices(
    store: EvidenceStore, columns: Mapping[str, Strings], names: tuple[str, ...], threat: Threat
) -> tuple[dict[str, tuple[ClassRow, ...]], dict[str, str]]:
    """Clean and worst-case accuracy per value of each further column of the data (n,), and why a column has no table."""
    tables, left_out = {}, {}
    for column, cells in columns.items():
        values = sorted(set(cells.tolist()))
        if 1 < len(values) <= MOST_SLICES:
            tables[printable(column, 60)] = tuple(
                _class_row(store, printable(value, 60) or "(empty)", cells == value, names, threat) for value in values
            )
        else:
            because = "one value only" if len(values) < 2 else f"{len(values)} values, more than {MOST_SLICES},"
            left_out[f"slices by {printable(column, 60)}"] = f"the column has {because} in the sample"
    return tables, left_out


def _class_row(store: EvidenceStore, name: str, members: Bools, names: tuple[str, ...], threat: Threat) -> ClassRow:
    strongest, count = strongest_arm(store, threat), int(members.sum())
    robust = robust_low = robust_high = None
    taken_for = None
    if count and strongest is not None:
        evidence = strongest[1]
        standing = int(evidence.robust[members].sum())
        interval = statistics.proportion(standing, count)
        robust, robust_low, robust_high = standing / count, interval.low, interval.high
        taken_for = _taken_for(evidence.adversarial_class[members & (evidence.broken_by >= 0)], names)
    return ClassRow(
        name=name,
        samples=count,
        clean=float(predictions_of(store).correct[members].mean()) if count else None,
        robust=robust,
        robust_low=robust_low,
        robust_high=robust_high,
        taken_for=taken_for,
    )


def _taken_for(broken_as: np.ndarray, names: tuple[str, ...]) -> str | None:
    if len(broken_as) == 0:
        return None
    counts = np.bincount(broken_as)
    return f"{class_name(names, int(counts.argmax()))} ({counts.max()} of {len(broken_as)})"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure to show: its record without images, and the images where they were kept."""

    record: FailureExample
    images: ShownFailure | None


def failures(store: EvidenceStore, names: tuple[str, ...], threats: tuple[Threat, ...], limit: int) -> tuple[Failure, ...]:
    """The first failures in sample order, of the strongest arm of each threat in turn, at most `limit`."""
    return tuple(islice((failure for threat in threats for failure in _failures_at(store, names, threat)), limit))


def _failures_at(store: EvidenceStore, names: tuple[str, ...], threat: Threat) -> Iterator[Failure]:
    strongest = strongest_arm(store, threat)
    if strongest is None:
        return
    arm, evidence = strongest
    predictions = predictions_of(store)
    scored, probabilities = predictions.no_scores is None, scipy.special.softmax(predictions.logits, axis=1)
    kept = {shown.position: shown for shown in evidence.shown}
    for row in np.flatnonzero(evidence.broken_by >= 0).tolist():
        label = int(predictions.labels[row])
        yield Failure(
            record=FailureExample(
                example_id=str(predictions.ids[row]),
                label=class_name(names, label),
                clean_confidence=float(probabilities[row, label]) if scored else None,
                adversarial_label=class_name(names, int(evidence.adversarial_class[row])),
                adversarial_confidence=float(evidence.adversarial_confidence[row]) if scored else None,
                attack=evidence.attacks[int(evidence.broken_by[row])],
                arm=arm,
                threat=str(threat),
                norm=threat.norm.value,
                distance=float(evidence.distance[row]),
            ),
            images=kept.get(row),
        )


def failures_total(store: EvidenceStore, threats: tuple[Threat, ...]) -> int:
    """How many examples the strongest arms broke in all, shown or not."""
    strongest = (strongest_arm(store, threat) for threat in threats)
    return sum(int(np.sum(found[1].broken_by >= 0)) for found in strongest if found is not None)


def passes_of(store: EvidenceStore) -> tuple[int, int]:
    """Forward and backward passes behind the evidence, in images; the same whether it was measured now or found in a journal."""
    forward = backward = 0
    for key, value in store.items():
        if key.kind in OF_REFERENCE:
            continue
        if isinstance(value, _COUNTED):
            forward += int(value.forward_passes.sum())
            backward += int(value.backward_passes.sum())
        elif isinstance(value, Predictions):
            forward += len(value.labels)
        elif isinstance(value, Neurons):
            forward += int(value.counts.sum())
        elif isinstance(value, NeuronProfile):
            forward += len(value.positions)
        elif isinstance(value, FisherSpectrum):
            forward += len(value.logits)
            backward += value.logits.size
        elif isinstance(value, FisherEstimate | BoundaryDistance | Certification):
            forward += int(value.queries.sum())
        elif isinstance(value, Corruptions):
            forward += value.correct.size
        elif isinstance(value, Sequences):
            forward += value.flips.size * value.frames
    return forward, backward


def counted_passes(value: AnyEvidence) -> Ints | None:
    """Forward and backward passes of each example (n,), where the evidence counts them."""
    return value.forward_passes + value.backward_passes if isinstance(value, _COUNTED) else None
