"""Calibration error: by hand, unbiased where a model is calibrated, and of what it should find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from corruption_by_hand import corruptions
from evidence_by_hand import predictions, reference_attack

from audit.errors import MissingCapability, Undefined
from audit.metrics import calibration


def binary(confidence, correct):
    """Answers of two classes with these confidences, at least 0.5."""
    confidence = np.asarray(confidence)
    return predictions(np.log(np.stack([confidence, 1 - confidence], axis=1)), np.where(correct, 0, 1))


def test_two_bins_by_hand():
    # Ten answers at 0.6 of which 6 are right, ten at 0.9 of which 5 are.
    confidence, correct = np.repeat([0.6, 0.9], 10), np.array([1] * 6 + [0] * 4 + [1] * 5 + [0] * 5, dtype=float)
    expected = ((0 - 0.6 * 0.4 / 9) + (0.4**2 - 0.5 * 0.5 / 9)) / 2
    assert calibration.debiased_square(confidence, correct) == pytest.approx(expected)
    found = calibration.calibration_error(predictions=binary(confidence, correct > 0))
    assert found.value == pytest.approx(expected**0.5) and found.interval is None and "calibrated model" in found.notes[0]


def test_the_square_is_unbiased_for_a_calibrated_model_and_the_plain_one_is_not():
    generator = np.random.default_rng(0)
    debiased, plain = [], []
    for _ in range(400):
        confidence = generator.uniform(0.5, 1, 200)
        correct = (generator.random(200) < confidence).astype(float)
        debiased.append(calibration.debiased_square(confidence, correct))
        gaps = [(len(rows) / 200, confidence[rows].mean() - correct[rows].mean()) for rows in calibration.bins_of(confidence)]
        plain.append(sum(weight * gap**2 for weight, gap in gaps))
    error = np.std(debiased) / np.sqrt(400)
    assert abs(np.mean(debiased)) < 4 * error and np.mean(plain) > 10 * error


@pytest.mark.parametrize("gap", [0.1, 0.3])
def test_a_constant_gap_is_found(gap):
    generator = np.random.default_rng(1)
    confidence = generator.uniform(0.6, 0.99, 20000)
    correct = generator.random(20000) < confidence - gap
    assert calibration.calibration_error(predictions=binary(confidence, correct)).value == pytest.approx(gap, abs=0.015)


def test_corrupted_answers_are_debiased_one_corruption_at_a_time():
    generator = np.random.default_rng(2)
    confidence = generator.uniform(0.5, 1, (60, 2, 5))
    correct = generator.random((60, 2, 5)) < confidence - 0.2
    squares = [
        calibration.debiased_square(confidence[:, kind, severity], correct[:, kind, severity].astype(float))
        for kind in range(2)
        for severity in range(5)
    ]
    evidence = corruptions(correct, confidence=confidence)
    assert calibration.calibration_error_corrupted(corruptions=evidence).value == pytest.approx(np.mean(squares) ** 0.5)
    with pytest.raises(Undefined, match="fewer than 10"):
        calibration.calibration_error_corrupted(corruptions=corruptions(correct[:5]))


def test_adversarial_answers_are_read_from_the_reference_attack():
    clean = binary(np.repeat([0.6, 0.9], 20), np.arange(40) % 2 == 0)
    attacked = reference_attack(clean.logits, clean.labels)
    assert calibration.calibration_error_adversarial(reference_attack=attacked).value == pytest.approx(
        calibration.calibration_error(predictions=clean).value
    )


def test_labels_have_no_calibration():
    with pytest.raises(MissingCapability, match="labels only"):
        calibration.calibration_error(predictions=replace(binary([0.9] * 20, [True] * 20), no_scores="labels only"))
    with pytest.raises(MissingCapability, match="labels only"):
        calibration.calibration_error_corrupted(corruptions=corruptions(np.ones((20, 1, 5)), no_scores="labels only"))
