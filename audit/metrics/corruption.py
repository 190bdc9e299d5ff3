"""Errors under natural corruptions: per kind, per severity, in the mean, and relative to a reference model."""

from __future__ import annotations

import numpy as np

from audit import statistics
from audit.corruptions.parameters import BENCHMARK_KINDS, KINDS
from audit.errors import MissingCapability, Undefined
from audit.evidence import MADE_HERE, Bools, Corruptions, Floats, Predictions
from audit.metrics.estimates import average
from audit.metrics.spec import Estimate, metric
from audit.result import Interval
from audit.vocabulary import Better, Family, Unit

SOURCE = "Hendrycks & Dietterich 2019 (arXiv 1903.12261)"
NOT_PAIRED = "the two models answered to different corrupted images"
FROST = "frost is procedural here: it differs from the source, which adds photographs of ice"


def averaged_kinds(evidence: Corruptions) -> list[int]:
    """The places of the kinds that enter means: the benchmark's 15.

    Raises:
        Undefined: there are no examples, or a folder of corrupted images lacks some of the kinds, which are named.
    """
    absent = [kind for kind in BENCHMARK_KINDS if kind in evidence.left_out]
    if absent:
        raise Undefined(f"the mean is over {len(BENCHMARK_KINDS)} kinds, of which the folder has no {', '.join(absent)}")
    places = [place for place, kind in enumerate(evidence.kinds) if kind in BENCHMARK_KINDS]
    if len(evidence.positions) == 0 or not places:
        raise Undefined("no example was corrupted")
    return places


def notes(evidence: Corruptions) -> tuple[str, ...]:
    """What a reader must know of a mean over kinds."""
    return (
        f"over {len(averaged_kinds(evidence))} kinds and 5 severities",
        FROST if evidence.source == MADE_HERE else f"of {evidence.source}",
    )


def interval_of(count: int, value: float, found: Interval | None, remarks: tuple[str, ...]) -> Estimate:
    """An estimate of an aggregate with its bootstrap interval, or why it has none."""
    few = count < statistics.SMALLEST_SAMPLE
    return Estimate(
        value=value,
        samples=count,
        interval=found,
        why_no_interval=None if found else statistics.TOO_FEW if few else "a resample has no value: a denominator vanishes",
        notes=remarks,
    )


@metric(
    symbol="uMCE",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source=SOURCE,
)
def unnormalised_mean_corruption_error(corruptions: Corruptions) -> Estimate:
    """Mean corruption error, unnormalised.

    The share of wrong answers over the benchmark's 15 kinds of corruption and 5 severities, on a random part of the sample, whose
    size is n; all corruptions of an image move together in the interval.
    Reads as: how often the model is wrong under natural disturbances, each kind counting the same.
    Undefined when: no example was corrupted; a folder of corrupted images lacks one of the 15 kinds.
    Differs from the source in: not divided by the errors of a reference model; frost is procedural.

    >>> from audit.metrics.corruption import unnormalised_mean_corruption_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> error = np.array([[[0, 0, 0, 1, 1]], [[0, 0, 0, 0, 1]]], dtype=float)
    >>> evidence = SimpleNamespace(positions=np.arange(2), kinds=("fog",), error=error, left_out=(), source="made here")
    >>> round(unnormalised_mean_corruption_error(corruptions=evidence).value, 3)
    0.3
    """
    places = averaged_kinds(corruptions)
    return average(corruptions.error[:, places].mean(axis=(1, 2)), notes(corruptions))


@metric(
    symbol="ΔMCE",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.POINTS,
    source=SOURCE,
)
def clean_subtracted_corruption_error(corruptions: Corruptions, predictions: Predictions) -> Estimate:
    """Mean corruption error less the clean error.

    The unnormalised mean corruption error minus the error on the same images uncorrupted.
    Reads as: what corruptions cost, whatever the model's clean accuracy is.
    Undefined when: no example was corrupted; a folder of corrupted images lacks one of the 15 kinds.
    Differs from the source in: not divided by the same of a reference model.

    >>> from audit.metrics.corruption import clean_subtracted_corruption_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> error = np.array([[[0, 0, 0, 1, 1]], [[1, 1, 1, 1, 1]]], dtype=float)
    >>> evidence = SimpleNamespace(positions=np.arange(2), kinds=("fog",), error=error, left_out=(), source="made here")
    >>> clean = SimpleNamespace(correct=np.array([True, False]))
    >>> round(clean_subtracted_corruption_error(corruptions=evidence, predictions=clean).value, 3)
    0.2
    """
    places = averaged_kinds(corruptions)
    clean = 1.0 - predictions.correct[corruptions.positions]
    return average(corruptions.error[:, places].mean(axis=(1, 2)) - clean, notes(corruptions))


@metric(
    symbol="CE",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source=SOURCE,
    variants=KINDS,
)
def corruption_error(corruptions: Corruptions, variant: str) -> Estimate:
    """Error under one kind of corruption.

    The share of wrong answers under one kind, over its five severities.
    Undefined when: no example was corrupted.

    >>> from audit.metrics.corruption import corruption_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> error = np.array([[[0, 0, 0, 1, 1]]], dtype=float)
    >>> evidence = SimpleNamespace(positions=np.arange(1), kinds=("fog",), error=error, left_out=(), left_out_because=())
    >>> corruption_error(corruptions=evidence, variant="fog").value
    0.4
    """
    if variant not in corruptions.kinds:
        because = dict(zip(corruptions.left_out, corruptions.left_out_because, strict=True))
        raise MissingCapability(because.get(variant, "there are no such corrupted images"))
    if len(corruptions.positions) == 0:
        raise Undefined("no example was corrupted")
    remarks = (FROST,) if variant == "frost" and corruptions.source == MADE_HERE else ()
    return average(corruptions.error[:, corruptions.kinds.index(variant)].mean(axis=1), remarks)


@metric(
    symbol="CE(s)",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source=SOURCE,
    variants=("severity_1", "severity_2", "severity_3", "severity_4", "severity_5"),
)
def corruption_error_by_severity(corruptions: Corruptions, variant: str) -> Estimate:
    """Error at one severity of corruption.

    The share of wrong answers at one severity, over the benchmark's 15 kinds.
    Undefined when: no example was corrupted.

    >>> from audit.metrics.corruption import corruption_error_by_severity
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> error = np.array([[[0, 0, 0, 1, 1]], [[0, 0, 0, 0, 1]]], dtype=float)
    >>> evidence = SimpleNamespace(positions=np.arange(2), kinds=("fog",), error=error, left_out=(), source="made here")
    >>> corruption_error_by_severity(corruptions=evidence, variant="severity_4").value
    0.5
    """
    places = averaged_kinds(corruptions)
    severity = int(variant.removeprefix("severity_")) - 1
    return average(corruptions.error[:, places, severity].mean(axis=1), notes(corruptions)[1:])


def _paired(corruptions: Corruptions, reference: Corruptions) -> tuple[Floats, Floats, list[str]]:
    """Wrong answers summed over severities, (m, c) of either model, and the kinds' names.

    Raises:
        Undefined: there is nothing to average, or the two did not see the same images.
    """
    places = averaged_kinds(corruptions)
    same = corruptions.kinds == reference.kinds and np.array_equal(corruptions.positions, reference.positions)
    if not same or corruptions.source != reference.source:
        raise Undefined(NOT_PAIRED)
    return (
        corruptions.error[:, places].sum(axis=2),
        reference.error[:, places].sum(axis=2),
        [corruptions.kinds[place] for place in places],
    )


def _mean_of_ratios(above: Floats, below: Floats) -> float:
    return float((above.mean(axis=0) / below.mean(axis=0)).mean())


def _resampled(above: Floats, below: Floats) -> Interval | None:
    return statistics.over_examples(len(above), lambda weights: ((weights @ above) / (weights @ below)).mean(axis=1))


@metric(
    symbol="mCE",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.RATIO,
    source=SOURCE,
    paper_row="mean corruption error",
)
def mean_corruption_error(corruptions: Corruptions, reference_corruptions: Corruptions) -> Estimate:
    """Mean corruption error relative to the reference.

    The mean over kinds c of sum_s E(f; s, c) / sum_s E(reference; s, c), s = 1..5: 1 for the reference itself.
    Reads as: below 1, the model errs less under corruptions than the reference.
    Undefined when: the reference never errs under some kind, which is named; no example was corrupted.
    Differs from the source in: the reference is the model given, not AlexNet; frost is procedural.

    >>> from audit.metrics.corruption import mean_corruption_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> def evidence(*wrong):
    ...     error = np.array([[[severity < count for severity in range(5)] for count in wrong]], dtype=float)
    ...     return SimpleNamespace(positions=np.arange(1), kinds=("fog", "snow"), error=error, left_out=(), source="made here")
    >>> mean_corruption_error(corruptions=evidence(1, 4), reference_corruptions=evidence(2, 4)).value
    0.75
    """
    own, other, names = _paired(corruptions, reference_corruptions)
    never = [name for name, errors in zip(names, other.sum(axis=0), strict=True) if errors == 0]
    if never:
        raise Undefined(f"the reference never errs under {', '.join(never)}")
    return interval_of(len(own), _mean_of_ratios(own, other), _resampled(own, other), notes(corruptions))


@metric(
    symbol="RmCE",
    family=Family.CORRUPTION,
    better=Better.LOWER,
    unit=Unit.RATIO,
    source=SOURCE,
    paper_row="relative mean corruption error",
)
def relative_mean_corruption_error(
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    predictions: Predictions,
    reference_predictions: Predictions,
) -> Estimate:
    """Mean corruption error relative to the reference, clean errors subtracted.

    The mean over kinds c of sum_s (E(f; s, c) - E(f; clean)) / sum_s (E(reference; s, c) - E(reference; clean)), s = 1..5.
    Reads as: below 1, corruptions cost the model less of its accuracy than the reference.
    Undefined when: under some kind, which is named, the reference's loss of accuracy is not told apart from 0 (its interval holds
    0); no example was corrupted.
    Differs from the source in: the reference is the model given, not AlexNet; frost is procedural.

    >>> from audit.metrics.corruption import relative_mean_corruption_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> def evidence(wrong):
    ...     error = np.array([[[severity < wrong for severity in range(5)]]] * 20, dtype=float)
    ...     return SimpleNamespace(positions=np.arange(20), kinds=("fog",), error=error, left_out=(), source="made here")
    >>> clean = SimpleNamespace(correct=np.ones(20, dtype=bool))
    >>> relative_mean_corruption_error(
    ...     corruptions=evidence(1), reference_corruptions=evidence(4), predictions=clean, reference_predictions=clean
    ... ).value
    0.25
    """
    own, other, names = _paired(corruptions, reference_corruptions)
    at = corruptions.positions
    lost, reference_lost = (
        errors - 5.0 * (~answers.correct[at])[:, None] for errors, answers in ((own, predictions), (other, reference_predictions))
    )
    unclear = [name for name, column in zip(names, reference_lost.T, strict=True) if _may_be_zero(column)]
    if unclear:
        raise Undefined(f"what the reference loses is not told apart from 0 under {', '.join(unclear)}")
    value = _mean_of_ratios(lost, reference_lost)
    return interval_of(len(own), value, _resampled(lost, reference_lost), notes(corruptions))


def _may_be_zero(values: Floats) -> bool:
    """Whether the mean's interval holds 0; without an interval, whether the mean is 0."""
    interval = statistics.mean(values)
    return bool(values.mean() == 0) if interval is None else interval.low <= 0 <= interval.high


def kept_under_corruption(evidence: Corruptions, clean: Bools) -> tuple[Floats, Floats]:
    """Per example the share of right answers over kinds and severities, and whether the clean answer is right; (m,) each.

    Raises:
        Undefined: there is nothing to average.
    """
    places = averaged_kinds(evidence)
    return evidence.correct[:, places].mean(axis=(1, 2)), clean[evidence.positions].astype(np.float64)
