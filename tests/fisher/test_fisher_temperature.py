import math

import numpy as np
import pytest

from audit.fisher.temperature import BOUNDS, fit_temperature, negative_log_likelihood


def sample(temperature, count=4000, seed=0):
    """Logits whose labels are drawn from softmax(z / T), so that T is the right answer."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 5)) * 3
    p = np.exp(logits / temperature)
    p /= p.sum(axis=1, keepdims=True)
    return logits, np.array([rng.choice(5, p=row) for row in p])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_recovers_the_temperature_of_the_labels(temperature):
    logits, labels = sample(temperature)
    fitted = fit_temperature(logits, labels)
    assert fitted.value == pytest.approx(temperature, rel=0.08) and not fitted.at_limit
    grid = [negative_log_likelihood(logits, labels, t) for t in np.geomspace(*BOUNDS, 400)]
    assert fitted.loss_after <= min(grid) + 1e-9 and fitted.loss_after <= fitted.loss_before


def test_scaled_logits_scale_the_temperature():
    logits, labels = sample(1.0)
    assert fit_temperature(7 * logits, labels).value == pytest.approx(7 * fit_temperature(logits, labels).value, rel=1e-4)


def test_limits_are_said():
    logits = np.array([[3.0, 0.0], [0.0, 3.0]])
    right = fit_temperature(logits, np.array([0, 1]))
    assert right.at_limit and right.value == BOUNDS[0]
    wrong = fit_temperature(logits, np.array([1, 0]))
    assert wrong.at_limit and wrong.value == BOUNDS[1]
    saturated = fit_temperature(1000 * logits, np.array([0, 1]))
    assert saturated.at_limit and saturated.value == BOUNDS[0] and math.isfinite(saturated.loss_after)
    flat = fit_temperature(np.zeros((3, 2)), np.array([0, 1, 0]))
    assert flat.at_limit and flat.value == 1.0 and flat.loss_after == pytest.approx(math.log(2))


def test_loss_by_hand():
    assert negative_log_likelihood(np.array([[2.0, 0.0]]), np.array([1]), 2.0) == pytest.approx(math.log(1 + math.e))


def test_the_fit_does_not_depend_on_the_order_of_the_examples():
    logits, labels = sample(2.0, count=500)
    order = np.random.default_rng(1).permutation(500)
    assert fit_temperature(logits[order], labels[order]) == fit_temperature(logits, labels)
