"""Calibration: how far confidence and accuracy lie apart, on clean, corrupted and adversarial images.

The plain binned error is above 0 for a calibrated model, by chance alone, and a bootstrap of it excludes the truth. So the squared
error is debiased bin by bin, as Kumar, Liang & Ma 2019 do; what a calibrated model would show stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.special

from audit.errors import MissingCapability, Undefined
from audit.evidence import Bools, Corruptions, Floats, Predictions, ReferenceAttack
from audit.metrics.corruption import averaged_kinds
from audit.metrics.spec import Estimate, metric
from audit.statistics import SMALLEST_SAMPLE
from audit.vocabulary import Better, Family, Unit

SOURCE = "Kumar, Liang & Ma 2019 (arXiv 1909.10155)"
MOST_BINS = 15
# Fewer answers in a bin leave nothing of its debiased error but noise.
_FEWEST_IN_A_BIN = 10
_SIMULATIONS = 200
WHY_NO_INTERVAL = (
    "a bootstrap of a calibration error excludes the truth for a calibrated model; its note says what such a one shows"
)


def bins_of(confidence: Floats) -> list[np.ndarray]:
    """Rows of (n,) in up to 15 bins of about equal size, from the lowest confidence to the highest; equal ones stay together."""
    count = max(1, min(MOST_BINS, len(confidence) // _FEWEST_IN_A_BIN))
    edges = np.unique(np.quantile(confidence, np.linspace(0, 1, count + 1)[1:-1]))
    place = np.searchsorted(edges, confidence, side="left")
    return [np.flatnonzero(place == index) for index in np.unique(place)]


def debiased_square(confidence: Floats, correct: Floats, bins: Sequence[np.ndarray] | None = None) -> float:
    """The squared calibration error of (n,) answers, n >= 10, without what chance adds to it; may be below 0.

    sum over bins of n_b / n ((c_b - a_b)^2 - a_b (1 - a_b) / (n_b - 1)), c and a the mean confidence and accuracy. `bins` are
    those of `bins_of(confidence)`, for who asks about the same confidences again.

    >>> round(debiased_square(np.full(20, 0.9), np.repeat([1.0, 0.0], [14, 6])), 4)
    0.0289
    """
    total = 0.0
    for rows in bins_of(confidence) if bins is None else bins:
        accuracy = correct[rows].mean()
        chance = accuracy * (1 - accuracy) / max(1, len(rows) - 1)
        total += len(rows) / len(confidence) * ((confidence[rows].mean() - accuracy) ** 2 - chance)
    return float(total)


def _error(confidence: Floats, correct: Bools) -> Estimate:
    """The error of answers (n, k), each of the k columns debiased on its own and averaged."""
    n, columns = confidence.shape
    if n < SMALLEST_SAMPLE:
        raise Undefined(f"fewer than {SMALLEST_SAMPLE} answers say nothing about calibration")

    bins = [bins_of(confidence[:, column]) for column in range(columns)]

    def root(right: Floats) -> float:
        squares = [debiased_square(confidence[:, column], right[:, column], bins[column]) for column in range(columns)]
        return float(np.sqrt(max(0.0, sum(squares) / columns)))

    generator = np.random.default_rng(0)
    # Of k columns the mean varies less: fewer simulations tell its spread.
    runs = max(20, _SIMULATIONS // columns)
    simulated = [root((generator.random((n, columns)) < confidence).astype(np.float64)) for _ in range(runs)]
    return Estimate(
        value=root(correct.astype(np.float64)),
        samples=n,
        interval=None,
        why_no_interval=WHY_NO_INTERVAL,
        notes=(f"a calibrated model with these confidences shows up to {np.quantile(simulated, 0.95):.3f} in 95 % of samples",),
    )


@metric(
    symbol="CalE",
    family=Family.CALIBRATION,
    better=Better.LOWER,
    unit=Unit.PROBABILITY,
    source=SOURCE,
    reads_scores=True,
)
def calibration_error(predictions: Predictions) -> Estimate:
    """Calibration error on clean images.

    The root of the debiased mean squared difference between confidence and accuracy, in up to 15 bins of equal size.
    Reads as: 0.05 means that answers are right about 5 points more or less often than their confidence says.
    Undefined when: there are fewer than 10 answers.

    >>> from audit.metrics.calibration import calibration_error
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> logits = np.log(np.tile([0.9, 0.1], (20, 1)))
    >>> answers = SimpleNamespace(logits=logits, correct=np.repeat([True, False], [14, 6]), no_scores=None)
    >>> round(calibration_error(predictions=answers).value, 3)
    0.17
    """
    if predictions.no_scores is not None:
        raise MissingCapability(predictions.no_scores)
    confidence = scipy.special.softmax(predictions.logits, axis=1).max(axis=1)
    return _error(confidence[:, None], predictions.correct[:, None])


@metric(
    symbol="CalE corr.",
    family=Family.CALIBRATION,
    better=Better.LOWER,
    unit=Unit.PROBABILITY,
    source=f"{SOURCE}; Ovadia et al. 2019 (arXiv 1906.02530)",
    reads_scores=True,
)
def calibration_error_corrupted(corruptions: Corruptions) -> Estimate:
    """Calibration error on corrupted images.

    As on clean images, over the benchmark's 15 kinds and 5 severities: the squared error of each is debiased on its own, then
    averaged.
    Undefined when: fewer than 10 examples were corrupted.

    >>> from audit.metrics.calibration import calibration_error_corrupted
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> right = np.broadcast_to(np.repeat([True, False], [14, 6])[:, None, None], (20, 1, 5))
    >>> evidence = SimpleNamespace(
    ...     positions=np.arange(20), kinds=("fog",), left_out=(), correct=right, confidence=0.9 + 0 * right, no_scores=None
    ... )
    >>> round(calibration_error_corrupted(corruptions=evidence).value, 3)
    0.17
    """
    if corruptions.no_scores is not None:
        raise MissingCapability(corruptions.no_scores)
    places = averaged_kinds(corruptions)
    n = len(corruptions.positions)
    return _error(corruptions.confidence[:, places].reshape(n, -1), corruptions.correct[:, places].reshape(n, -1))


@metric(
    symbol="CalE adv.",
    family=Family.CALIBRATION,
    better=Better.LOWER,
    unit=Unit.PROBABILITY,
    source=SOURCE,
)
def calibration_error_adversarial(reference_attack: ReferenceAttack) -> Estimate:
    """Calibration error on adversarial images.

    As on clean images, on what the reference attack made of every example; those that are wrong unattacked stay as they are.
    Undefined when: there are fewer than 10 answers.

    >>> from audit.metrics.calibration import calibration_error_adversarial
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> logits = np.log(np.tile([0.9, 0.1], (20, 1)))
    >>> attacked = SimpleNamespace(adversarial_logits=logits, labels=np.repeat([0, 1], [14, 6]))
    >>> round(calibration_error_adversarial(reference_attack=attacked).value, 3)
    0.17
    """
    probabilities = scipy.special.softmax(reference_attack.adversarial_logits, axis=1)
    correct = probabilities.argmax(axis=1) == reference_attack.labels
    return _error(probabilities.max(axis=1)[:, None], np.asarray(correct)[:, None])
