import numpy as np
import pytest
import torch

from audit.attacks.ball import Ball, distance, row_sum
from audit.attacks.randomness import generator, generators
from audit.errors import InputError
from audit.vocabulary import Norm, Threat


def images(count=6, shape=(3, 5, 4), seed=0):
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))
    return torch.where(x < 0.2, 0.0, torch.where(x > 0.9, 1.0, x))


def slow_l2_projection(z: np.ndarray, x: np.ndarray, epsilon: float) -> np.ndarray:
    """The KKT form clip((z + mu x) / (1 + mu)) with mu by plain bisection."""
    if np.linalg.norm(z.clip(0, 1) - x) <= epsilon:
        return z.clip(0, 1)
    low, high = 0.0, 1e9
    for _ in range(200):
        mu = (low + high) / 2
        inside = np.linalg.norm(((z + mu * x) / (1 + mu)).clip(0, 1) - x) <= epsilon
        low, high = (low, mu) if inside else (mu, high)
    return ((z + high * x) / (1 + high)).clip(0, 1)


@pytest.mark.parametrize("width", [1, 2, 3, 7, 60, 784])
def test_row_sum_equals_numpy(width):
    values = torch.rand(5, width, dtype=torch.float64)
    np.testing.assert_allclose(row_sum(values).numpy(), values.numpy().sum(axis=1), rtol=1e-13)


@pytest.mark.parametrize("epsilon", ["0.05", "0.5", "2.0"])
def test_l2_projection_is_the_nearest_point(epsilon):
    threat, x = Threat.parse(f"l2:{epsilon}"), images()
    z = x + 0.7 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    projected = Ball.around(x, threat).project(z)
    for i in range(len(x)):
        slow = slow_l2_projection(z[i].double().numpy(), x[i].double().numpy(), threat.epsilon)
        # The iteration stops within a relative 1e-4 of the budget.
        assert np.abs(projected[i].numpy() - slow).max() < 2e-3 * threat.epsilon
        assert abs(np.linalg.norm(projected[i].double().numpy() - slow)) < 1e-3 * threat.epsilon


@pytest.mark.parametrize("text", ["linf:8/255", "linf:1/3", "linf:1", "l2:0.5", "l2:0.001", "l2:0"])
def test_confined_points_are_inside_in_float64(text):
    threat, x = Threat.parse(text), images(50)
    for scale in (1e-3, 0.1, 10.0):
        z = x + scale * torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
        y = Ball.around(x, threat).confine(z)
        assert float(y.min()) >= 0 and float(y.max()) <= 1
        assert float(distance(y, x, threat.norm).max()) <= threat.epsilon


def test_linf_points_reach_the_bound():
    x = torch.full((1, 1, 2, 2), 0.5)
    ball = Ball.around(x, Threat.parse("linf:8/255"))
    assert float(distance(ball.project(x + 1), x, Norm.LINF)) > 8 / 255 - 1e-7


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.4"])
def test_random_points_are_inside_random_and_the_examples_own(text):
    threat, x = Threat.parse(text), torch.full((4, 1, 6, 6), 0.5)
    ids = ["a", "b", "c", "d"]
    points = Ball.around(x, threat).random_points(generators(0, ids, "start"))
    lengths = distance(points, x, threat.norm)
    assert bool((lengths <= threat.epsilon * (1 + 1e-6)).all()) and len(set(lengths.tolist())) == 4
    alone = Ball.around(x[2:3], threat).random_points([generator(0, "c", "start")])
    assert torch.equal(alone[0], points[2])
    edge = Ball.around(x, threat).random_points(generators(0, ids, "start"), on_edge=True)
    assert distance(edge, x, threat.norm).tolist() == pytest.approx([threat.epsilon] * 4, rel=1e-5)


def test_generators_differ_by_seed_id_and_purpose():
    def draw(*key):
        return float(torch.rand((), generator=generator(*key)))

    values = {draw(0, "a", "x"), draw(1, "a", "x"), draw(0, "b", "x"), draw(0, "a", "y")}
    assert len(values) == 4 and draw(0, "a", "x") in values


def test_steepest_l2_direction_does_not_waste_length_on_the_box():
    x = torch.tensor([[[[0.0, 0.5]]]])
    ball = Ball.around(x, Threat.parse("l2:0.1"))
    assert ball.steepest(x, torch.tensor([[[[-9.0, 1.0]]]])).flatten().tolist() == [0.0, 1.0]
    assert ball.steepest(x, torch.zeros_like(x)).flatten().tolist() == [0.0, 0.0]


def test_l1_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="L1 ball"):
        Ball.around(images(), Threat.parse("l1:3"))
