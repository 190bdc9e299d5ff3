"""Labels that do not mean the model's classes are noticed; honest mistakes of a model are not."""

from __future__ import annotations

import numpy as np
import pytest

from audit.engine.labels import label_hint


@pytest.fixture
def right():
    return np.random.default_rng(0).integers(0, 10, 300)


def noisy(values, share, seed=1):
    generator = np.random.default_rng(seed)
    wrong = generator.random(len(values)) < share
    return np.where(wrong, generator.integers(0, 10, len(values)), values)


def test_labels_that_fit_raise_nothing(right):
    assert label_hint(right, noisy(right, 0.1), 10) is None
    assert label_hint(right, noisy(right, 0.7), 10) is None


def test_a_model_that_guesses_raises_nothing(right):
    for seed in range(20):
        assert label_hint(right, np.random.default_rng(seed + 5).integers(0, 10, 300), 10) is None


def test_constant_predictions_raise_nothing(right):
    assert label_hint(right, np.zeros(300, dtype=int), 10) is None


@pytest.mark.parametrize(("offset", "word"), [(1, "lowered"), (-1, "raised")])
def test_off_by_one(right, offset, word):
    labels = np.clip(noisy(right, 0.1) + offset, 0, 10)
    hint = label_hint(labels, right, 10)
    assert "off by one" in hint
    assert word in hint


def test_another_order(right):
    order = np.array([1, 0, 2, 3, 4, 5, 6, 7, 9, 8])
    hint = label_hint(order[right], noisy(right, 0.05), 10)
    assert "another order" in hint
    assert "label 0 is class 1" in hint
    assert "label 8 is class 9" in hint


def test_two_confused_classes_are_the_models_own_mistake(right):
    predicted = right.copy()
    predicted[(right == 3) & (np.arange(300) % 2 == 0)] = 5
    assert label_hint(right, predicted, 10) is None


def test_one_example_says_nothing():
    assert label_hint(np.array([0]), np.array([1]), 2) is None
