"""The shortest change to a hyperplane inside [0, 1] against bisection and scipy's linear programme."""

import minimum_norm
import numpy as np
import pytest
import scipy.optimize
import torch

from audit.attacks.ball import length
from audit.attacks.hyperplane import shortest_change, smallest_change, strongest_rivals
from audit.vocabulary import Norm


def problem(seed=0, count=40, shape=(2, 3, 4)):
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(count, *shape, generator=source)
    x = torch.where(x < 0.2, 0.0, torch.where(x > 0.8, 1.0, x))
    w = torch.randn(count, *shape, generator=source)
    w[:, 0, 0, 0] = 0
    return x, w, torch.linspace(-9, 9, count)


@pytest.mark.parametrize("norm", list(Norm))
def test_smallest_change_is_the_shortest_inside_the_range(norm):
    x, w, gain = problem()
    d = smallest_change(x, w, gain, norm)
    after = x.double() + d
    assert float(after.min()) >= -1e-12 and float(after.max()) <= 1 + 1e-12
    won = (w.double() * d).flatten(1).sum(dim=1)
    cut_off = 0
    for i in range(len(x)):
        wi, xi, gi = w[i].double().numpy().ravel(), x[i].double().numpy().ravel(), float(gain[i])
        best = minimum_norm.nearest_boundary(xi, wi if gi > 0 else -wi, abs(gi), norm)
        if np.isinf(best):  # the corner that gains most
            cut_off += 1
            corner = np.maximum(np.sign(gi) * wi * (1 - xi), -np.sign(gi) * wi * xi).sum()
            assert float(won[i]) == pytest.approx(np.sign(gi) * corner, rel=1e-9)
        else:
            assert float(won[i]) == pytest.approx(gi, rel=1e-6)
            assert float(length(d[i : i + 1], norm)) == pytest.approx(best, rel=1e-6)
    assert 0 < cut_off < 30


def test_l1_change_against_a_linear_programme():
    x, w, _ = problem(1, 6)
    d = smallest_change(x, w, torch.full((6,), 2.0), Norm.L1)
    for i in range(6):
        wi, xi = w[i].double().numpy().ravel(), x[i].double().numpy().ravel()
        bounds = [(0, r) for r in (*(1 - xi), *xi)]
        found = scipy.optimize.linprog(np.ones(2 * len(wi)), A_eq=np.concatenate([wi, -wi])[None], b_eq=[2.0], bounds=bounds)
        assert float(d[i].abs().sum()) == pytest.approx(found.fun, rel=1e-7)


@pytest.mark.parametrize("norm", list(Norm))
def test_no_slope_and_no_gain_change_nothing(norm):
    x, w, gain = problem()
    assert not smallest_change(x, torch.zeros_like(w), gain, norm).any()
    assert not smallest_change(x, w, torch.zeros_like(gain), norm).any()


@pytest.mark.parametrize(("norm", "dual"), [(Norm.LINF, Norm.L1), (Norm.L2, Norm.L2)])
def test_shortest_change_is_gain_over_dual_norm(norm, dual):
    _, w, gain = problem()
    d = shortest_change(w, gain, norm)
    np.testing.assert_allclose((w.double() * d).flatten(1).sum(dim=1).numpy(), gain.numpy(), rtol=1e-9)
    np.testing.assert_allclose(length(d, norm).numpy(), (gain.double().abs() / length(w, dual)).numpy(), rtol=1e-9)
    assert not shortest_change(torch.zeros_like(w), gain, norm).any()


def test_strongest_rivals_leave_the_label_out():
    logits = torch.tensor([[5.0, 1.0, 3.0, 2.0], [0.0, 9.0, 8.0, 8.0]])
    assert strongest_rivals(logits, torch.tensor([0, 2]), 9).tolist() == [[2, 3, 1], [1, 3, 0]]
    assert strongest_rivals(logits, torch.tensor([0, 2]), 1).tolist() == [[2], [1]]
    assert strongest_rivals(logits[:, :1], torch.tensor([0, 0]), 9).shape == (2, 0)
