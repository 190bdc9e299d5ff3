import numpy as np
import pytest
import scipy.optimize
import torch

from audit.attacks.ball import Ball, distance
from audit.attacks.l1_ball import row_sum, sparse_sign
from audit.attacks.randomness import generator, generators
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


@pytest.mark.parametrize("text", ["linf:8/255", "linf:1/3", "linf:1", "l2:0.5", "l2:0.001", "l2:0", "l1:0.5", "l1:12", "l1:0"])
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


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.4", "l1:1"])
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


def slow_l1_projection(z: np.ndarray, x: np.ndarray, epsilon: float) -> np.ndarray:
    """Quadratic programme over the split change, by scipy."""
    size, room = np.abs(z - x).ravel(), np.where(z > x, 1 - x, x).ravel()
    if np.minimum(size, room).sum() <= epsilon:
        return x + np.sign(z - x) * np.minimum(size, room).reshape(x.shape)
    found = scipy.optimize.minimize(
        lambda p: ((p - size) ** 2).sum(),
        np.minimum(size, room) * epsilon / np.minimum(size, room).sum(),
        jac=lambda p: 2 * (p - size),
        bounds=[(0, r) for r in room],
        constraints={"type": "ineq", "fun": lambda p: epsilon - p.sum(), "jac": lambda p: -np.ones_like(p)},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return x + np.sign(z - x) * found.x.reshape(x.shape)


@pytest.mark.parametrize("epsilon", ["0.3", "2", "30"])
def test_l1_projection_is_the_nearest_point(epsilon):
    threat, x = Threat.parse(f"l1:{epsilon}"), images(4, (1, 4, 4))
    z = x + 0.7 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    projected = Ball.around(x, threat).project(z)
    for i in range(len(x)):
        slow = slow_l1_projection(z[i].double().numpy(), x[i].double().numpy(), threat.epsilon)
        assert np.abs(projected[i].numpy() - slow).max() < 1e-4


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.5", "l2:3", "l1:0.7", "l1:6"])
def test_farthest_maximises_a_linear_loss(text):
    threat, x = Threat.parse(text), images(5, (1, 4, 4))
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    ball = Ball.around(x, threat)
    reached = ((ball.farthest(direction) - x) * direction).flatten(1).sum(1).double().numpy()
    for i in range(len(x)):
        g, low, high = direction[i].double().numpy().ravel(), -x[i].double().numpy().ravel(), 1 - x[i].double().numpy().ravel()
        if threat.norm is Norm.LINF:
            best = np.maximum(g * np.minimum(high, threat.epsilon), g * np.maximum(low, -threat.epsilon)).sum()
        elif threat.norm is Norm.L1:
            best = -scipy.optimize.linprog(
                np.concatenate([-g, g]),
                A_ub=np.ones((1, 32)),
                b_ub=[threat.epsilon],
                bounds=[(0, r) for r in (*high, *-low)],
            ).fun
        else:
            # Water filling: clip(s g) with the largest s that stays in the ball.
            scales = [s for s in np.geomspace(1e-3, 1e6, 20001) if np.linalg.norm((s * g).clip(low, high)) <= threat.epsilon]
            best = ((scales[-1] * g).clip(low, high) * g).sum()
        assert reached[i] <= best + 2e-3 and reached[i] >= best * (1 - 2e-3)
    assert torch.equal(ball.farthest(torch.zeros_like(x)), x)


def test_sparse_sign_steps_have_unit_length_on_the_largest_components():
    rows = torch.tensor([[3.0, -2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert sparse_sign(rows, torch.tensor([0.5, 0.5])).tolist() == [[0.5, -0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    assert sparse_sign(rows, torch.tensor([0.01, 1.0]))[0].tolist() == [1.0, 0.0, 0.0, 0.0]
