import math

import numpy as np
import pytest
import torch

from audit.fisher.margin import linearised_margins


def test_binary_linear_distance_in_each_norm():
    w = torch.tensor([3.0, -4.0, 0.0])
    jacobian = torch.stack([w, torch.zeros(3)])[None]
    found = linearised_margins(np.array([[1.4, 0.0]]), jacobian, np.array([0]))
    assert found.linf[0] == pytest.approx(0.2) and found.l2[0] == pytest.approx(0.28) and found.l1[0] == pytest.approx(0.35)
    assert not found.zero_gradient[0]


def test_nearest_class_is_not_always_the_runner_up():
    jacobian = torch.zeros(1, 3, 2)
    jacobian[0, 1, 0], jacobian[0, 2, 0] = 1.0, 10.0
    found = linearised_margins(np.array([[2.0, 1.5, 1.0]]), jacobian, np.array([0]))
    assert found.linf[0] == pytest.approx(0.1)


def test_misclassified_is_zero_and_flat_is_flagged_and_finite():
    jacobian = torch.zeros(2, 2, 4)
    found = linearised_margins(np.array([[0.0, 1.0], [1.0, 0.0]]), jacobian, np.array([0, 0]))
    assert found.l2.tolist() == [0.0, math.sqrt(4)] and found.linf.tolist() == [0.0, 1.0] and found.l1.tolist() == [0.0, 4.0]
    assert found.zero_gradient.tolist() == [True, True]


def test_a_radius_stays_inside_the_box_even_for_tiny_gradients():
    found = linearised_margins(
        np.array([[5.0, 0.0]]), torch.full((1, 2, 4), 1e-30) * torch.tensor([1.0, 2.0])[:, None], np.array([0])
    )
    assert found.linf[0] == 1.0 and not found.zero_gradient[0]


def test_many_classes_look_at_the_twenty_highest_others():
    logits = -np.arange(30.0)[None]
    jacobian = torch.zeros(1, 30, 1)
    jacobian[0, 20], jacobian[0, 21] = 100.0, 1e6
    found = linearised_margins(logits, jacobian, np.array([0]))
    assert found.linf[0] == pytest.approx(20 / 100)


def test_shifting_or_scaling_logits_changes_nothing():
    rng = np.random.default_rng(0)
    logits, jacobian = rng.normal(size=(4, 6)), torch.from_numpy(rng.normal(size=(4, 6, 9)) * 50)
    labels = logits.argmax(axis=1)
    base = linearised_margins(logits, jacobian, labels)
    moved = linearised_margins(3 * logits + 5, 3 * jacobian, labels)
    np.testing.assert_allclose(moved.l2, base.l2, rtol=1e-9)
    assert (base.linf <= base.l2).all() and (base.l2 <= base.l1).all() and (base.linf > 0).all()
