"""Comparison with a reference: by hand, against plain loops, of a model with itself, and the identity CAV = CRR - CSR."""

from __future__ import annotations

import math

import numpy as np
import pytest
from corruption_by_hand import corruptions, random_corruptions
from evidence_by_hand import predictions
from scipy.spatial.distance import jensenshannon

from audit.errors import MissingCapability, Undefined
from audit.metrics import comparison

METRICS = (
    comparison.classification_accuracy_variance,
    comparison.classification_rectify_ratio,
    comparison.classification_sacrifice_ratio,
    comparison.classification_confidence_variance,
    comparison.classification_output_stability,
)


def answers(seed: int, n: int = 40, classes: int = 3):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    logits = generator.normal(size=(n, classes)) + 2 * np.eye(classes)[labels]
    return predictions(logits, labels)


def whole(seed: int, share: float = 0.8):
    """Corrupted answers of two classes whose whole outputs are kept."""
    found = random_corruptions(seed, share, m=30, c=3)
    first = np.where(found.correct, 0.9, 0.3) - 0.02 * seed
    whole_answers = np.stack([first, 1 - first], axis=-1, dtype=np.float32)
    return corruptions(found.correct, confidence=np.maximum(first, 1 - first), probabilities=whole_answers)


def values(own, other, corrupted=None, other_corrupted=None, variant="clean"):
    given = {"predictions": own, "reference_predictions": other, "corruptions": corrupted, "reference_corruptions": other_corrupted}
    return [metric(**given, variant=variant) for metric in METRICS]


def test_three_images_by_hand():
    own = predictions(np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), [0, 0, 0])
    other = predictions(np.log([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8]]), [0, 0, 0])
    cav, crr, csr, ccv, cos = values(own, other)
    assert (cav.value, crr.value, csr.value) == pytest.approx((0, 1 / 3, 1 / 3))
    # Only the first image is right for both.
    assert ccv.value == pytest.approx(0.3) and ccv.samples == 1
    expected = sum(p * math.log(p / m) for p, m in ((0.9, 0.75), (0.1, 0.25), (0.6, 0.75), (0.4, 0.25))) / 2
    assert cos.value == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_clean_values_against_a_plain_loop(seed):
    own, other = answers(seed), answers(seed + 10)
    cav, crr, csr, ccv, cos = values(own, other)
    assert cav.value == pytest.approx(crr.value - csr.value) and cav.interval.low <= cav.value <= cav.interval.high
    softmax = [np.exp(each.logits) / np.exp(each.logits).sum(axis=1, keepdims=True) for each in (own, other)]
    both = [i for i in range(40) if own.correct[i] and other.correct[i]]
    assert ccv.value == pytest.approx(np.mean([abs(softmax[0][i, own.labels[i]] - softmax[1][i, own.labels[i]]) for i in both]))
    assert cos.value == pytest.approx(np.mean([jensenshannon(softmax[0][i], softmax[1][i]) ** 2 for i in both]))
    assert 0 <= cos.value <= math.log(2)


def test_corrupted_values_against_a_plain_loop():
    own, other = whole(0), whole(1, 0.6)
    cav, crr, csr, ccv, cos = values(None, None, own, other, variant="corrupted")
    cells = list(np.ndindex(30, 3, 5))
    assert cav.value == pytest.approx(own.correct.mean() - other.correct.mean()) == pytest.approx(crr.value - csr.value)
    assert crr.value == pytest.approx(np.mean([own.correct[cell] and not other.correct[cell] for cell in cells]))
    both = [cell for cell in cells if own.correct[cell] and other.correct[cell]]
    assert ccv.value == pytest.approx(np.mean([abs(own.true_confidence[cell] - other.true_confidence[cell]) for cell in both]))
    expected = np.mean([jensenshannon(own.probabilities[cell], other.probabilities[cell]) ** 2 for cell in both])
    assert cos.value == pytest.approx(expected, rel=1e-4) and cos.interval.low <= cos.value <= cos.interval.high


def test_a_model_against_itself_is_exactly_zero():
    own, corrupted = answers(5), whole(2)
    for variant in comparison.VARIANTS:
        assert [found.value for found in values(own, own, corrupted, corrupted, variant)] == [0.0] * 5


def test_nothing_that_both_get_right_is_undefined():
    right, wrong = predictions(np.log([[0.9, 0.1]] * 12), [0] * 12), predictions(np.log([[0.1, 0.9]] * 12), [0] * 12)
    given = {"corruptions": None, "reference_corruptions": None, "variant": "clean"}
    for metric in METRICS[3:]:
        with pytest.raises(Undefined, match="by both models"):
            metric(predictions=right, reference_predictions=wrong, **given)
    assert METRICS[0](predictions=right, reference_predictions=wrong, **given).value == 1


def test_labels_have_no_confidence_to_compare():
    from dataclasses import replace

    labels = replace(answers(0), no_scores="labels only")
    for metric in METRICS[3:]:
        with pytest.raises(MissingCapability, match="labels only"):
            metric(
                predictions=labels,
                reference_predictions=answers(1),
                corruptions=None,
                reference_corruptions=None,
                variant="clean",
            )
