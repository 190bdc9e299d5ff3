"""The model beside a reference on the same images: what it gains, what it loses, how far its answers moved.

Each value comes on clean images and on corrupted ones: the benchmark's 15 kinds at five severities, where all corruptions of an
image move together in the interval.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.special

from audit import statistics
from audit.errors import MissingCapability, Undefined
from audit.evidence import Bools, Corruptions, Floats, Predictions
from audit.metrics.corruption import NOT_PAIRED, averaged_kinds, interval_of
from audit.metrics.estimates import average, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "Ling et al. 2019 (DEEPSEC)"
VARIANTS = ("clean", "corrupted")
_NONE_RIGHT = "no image is classified correctly by both models"
_RECTIFY_AND_SACRIFICE = "classification rectify and sacrifice ratio"
_compared = partial(metric, family=Family.COMPARISON, source=SOURCE, variants=VARIANTS)


def _right(own: Corruptions, other: Corruptions) -> tuple[Bools, Bools]:
    """Right answers of either model to the same corrupted images, (m, 75) or fewer.

    Raises:
        Undefined: there are none, or the two models saw different ones.
    """
    places = averaged_kinds(own)
    same = own.kinds == other.kinds and own.source == other.source and np.array_equal(own.positions, other.positions)
    if not same:
        raise Undefined(NOT_PAIRED)
    return own.correct[:, places].reshape(len(own.positions), -1), other.correct[:, places].reshape(len(own.positions), -1)


def _scored(*evidence: Predictions | Corruptions) -> None:
    for each in evidence:
        if each.no_scores is not None:
            raise MissingCapability(each.no_scores)


def _over_both_right(values: Floats, both: Bools) -> Estimate:
    """The mean of (m, k) over the cells where both models are right; examples are resampled."""
    if not both.any():
        raise Undefined(_NONE_RIGHT)
    sums, counts = np.where(both, values, 0.0).sum(axis=1), both.sum(axis=1).astype(np.float64)
    found = statistics.over_examples(len(sums), lambda weights: (weights @ sums) / (weights @ counts))
    return interval_of(len(sums), float(sums.sum() / counts.sum()), found, ())


def _right_alone(clean: tuple[Predictions, Predictions], corrupted: tuple[Corruptions, Corruptions], variant: str) -> Estimate:
    """The share of images that the first model gets right and the second one wrong."""
    if variant == "corrupted":
        first, second = _right(*corrupted)
        return average((first & ~second).mean(axis=1))
    return share(clean[0].correct & ~clean[1].correct)


@_compared(symbol="CAV", better=Better.HIGHER, unit=Unit.POINTS, paper_row="classification accuracy variance")
def classification_accuracy_variance(
    predictions: Predictions,
    reference_predictions: Predictions,
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    variant: str,
) -> Estimate:
    """Accuracy beyond the reference's.

    Acc(model) - Acc(reference), with its sign.
    Reads as: above 0, the model is right more often than the reference.
    Undefined when: for corrupted images, no example was corrupted.

    >>> from audit.metrics.comparison import classification_accuracy_variance
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> own, other = (SimpleNamespace(correct=np.array(right) > 0) for right in ([1, 1, 0, 1], [1, 0, 0, 0]))
    >>> classification_accuracy_variance(
    ...     predictions=own, reference_predictions=other, corruptions=None, reference_corruptions=None, variant="clean"
    ... ).value
    0.5
    """
    if variant == "corrupted":
        own, other = _right(corruptions, reference_corruptions)
        return average(own.mean(axis=1) - other.mean(axis=1))
    counts = statistics.PairedCounts.of(predictions.correct, reference_predictions.correct)
    return Estimate(
        value=float(predictions.correct.mean() - reference_predictions.correct.mean()),
        samples=counts.samples,
        interval=statistics.paired_share_difference(counts),
    )


@_compared(symbol="CRR", better=Better.HIGHER, unit=Unit.SHARE, paper_row=_RECTIFY_AND_SACRIFICE)
def classification_rectify_ratio(
    predictions: Predictions,
    reference_predictions: Predictions,
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    variant: str,
) -> Estimate:
    """Images that the model gets right and the reference wrong.

    Their share of all N.
    Undefined when: for corrupted images, no example was corrupted.

    >>> from audit.metrics.comparison import classification_rectify_ratio
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> own, other = (SimpleNamespace(correct=np.array(right) > 0) for right in ([1, 1, 0, 0], [1, 0, 0, 1]))
    >>> classification_rectify_ratio(
    ...     predictions=own, reference_predictions=other, corruptions=None, reference_corruptions=None, variant="clean"
    ... ).value
    0.25
    """
    return _right_alone((predictions, reference_predictions), (corruptions, reference_corruptions), variant)


@_compared(symbol="CSR", better=Better.LOWER, unit=Unit.SHARE, paper_row=_RECTIFY_AND_SACRIFICE)
def classification_sacrifice_ratio(
    predictions: Predictions,
    reference_predictions: Predictions,
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    variant: str,
) -> Estimate:
    """Images that the reference gets right and the model wrong.

    Their share of all N.
    Undefined when: for corrupted images, no example was corrupted.

    >>> from audit.metrics.comparison import classification_sacrifice_ratio
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> own, other = (SimpleNamespace(correct=np.array(right) > 0) for right in ([1, 0, 0, 0], [1, 1, 0, 1]))
    >>> classification_sacrifice_ratio(
    ...     predictions=own, reference_predictions=other, corruptions=None, reference_corruptions=None, variant="clean"
    ... ).value
    0.5
    """
    return _right_alone((reference_predictions, predictions), (reference_corruptions, corruptions), variant)


@_compared(
    symbol="CCV", better=Better.LOWER, unit=Unit.PROBABILITY, paper_row="classification confidence variance", reads_scores=True
)
def classification_confidence_variance(
    predictions: Predictions,
    reference_predictions: Predictions,
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    variant: str,
) -> Estimate:
    """Change of confidence where both are right.

    Over the inputs that both models get right: the mean of |P_ref[y] - P[y]|.
    Undefined when: no image is classified correctly by both.

    >>> from audit.metrics.comparison import classification_confidence_variance
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> def answers(*first):
    ...     logits = np.log([[p, 1 - p] for p in first])
    ...     return SimpleNamespace(logits=logits, labels=np.zeros(2, dtype=int), correct=np.array(first) > 0.5, no_scores=None)
    >>> round(classification_confidence_variance(
    ...     predictions=answers(0.9, 0.2), reference_predictions=answers(0.6, 0.8),
    ...     corruptions=None, reference_corruptions=None, variant="clean",
    ... ).value, 3)
    0.3
    """
    if variant == "corrupted":
        own, other = _right(corruptions, reference_corruptions)
        _scored(corruptions, reference_corruptions)
        places = averaged_kinds(corruptions)
        moved = np.abs(corruptions.true_confidence[:, places] - reference_corruptions.true_confidence[:, places])
        return _over_both_right(moved.reshape(own.shape), own & other)
    _scored(predictions, reference_predictions)
    rows = np.arange(len(predictions.labels)), predictions.labels
    moved = np.abs(_probabilities(predictions)[rows] - _probabilities(reference_predictions)[rows])
    return _mean_where(moved, predictions.correct & reference_predictions.correct)


@_compared(symbol="COS", better=Better.LOWER, unit=Unit.NATS, paper_row="classification output stability", reads_scores=True)
def classification_output_stability(
    predictions: Predictions,
    reference_predictions: Predictions,
    corruptions: Corruptions,
    reference_corruptions: Corruptions,
    variant: str,
) -> Estimate:
    """Divergence of the answers where both are right.

    Over the inputs that both models get right: the mean Jensen-Shannon divergence of their outputs, natural logarithm, in
    [0, ln 2]. On corrupted images over the first examples whose whole answers are kept: all of them, unless there are hundreds of
    classes.
    Undefined when: no image is classified correctly by both.

    >>> from audit.metrics.comparison import classification_output_stability
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> def answers(*first):
    ...     logits = np.log([[p, 1 - p] for p in first])
    ...     return SimpleNamespace(logits=logits, labels=np.zeros(1, dtype=int), correct=np.array(first) > 0.5, no_scores=None)
    >>> round(classification_output_stability(
    ...     predictions=answers(0.9), reference_predictions=answers(0.6),
    ...     corruptions=None, reference_corruptions=None, variant="clean",
    ... ).value, 4)
    0.0633
    """
    if variant == "corrupted":
        own, other = _right(corruptions, reference_corruptions)
        _scored(corruptions, reference_corruptions)
        places = averaged_kinds(corruptions)
        first, second = (each.probabilities[:, places].astype(np.float64) for each in (corruptions, reference_corruptions))
        diverged = jensen_shannon(first, second)
        kept = len(diverged)
        return _over_both_right(diverged.reshape(kept, -1), (own & other)[:kept])
    _scored(predictions, reference_predictions)
    diverged = jensen_shannon(_probabilities(predictions), _probabilities(reference_predictions))
    return _mean_where(diverged, predictions.correct & reference_predictions.correct)


def jensen_shannon(first: Floats, second: Floats) -> Floats:
    """The Jensen-Shannon divergence of distributions along the last axis, natural logarithm, in [0, ln 2].

    >>> jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(4).item()
    0.6931
    """
    middle = (first + second) / 2
    both = scipy.special.rel_entr(first, middle) + scipy.special.rel_entr(second, middle)
    return np.asarray(np.clip(both.sum(axis=-1) / 2, 0.0, np.log(2)))


def _probabilities(evidence: Predictions) -> Floats:
    return np.asarray(scipy.special.softmax(evidence.logits, axis=1))


def _mean_where(values: Floats, both: Bools) -> Estimate:
    if not both.any():
        raise Undefined(_NONE_RIGHT)
    return average(values[both])
