"""On models whose margin is known in closed form, gradients keep their promise exactly, by half, or not at all."""

import numpy as np
import pytest
import torch

from audit.attacks.health import STEP_SIZES, health
from audit.attacks.run import Batch, Oracle
from audit.models.torch_module import wrap
from audit.vocabulary import Threat

SHAPE = (1, 5, 5)
W = torch.randn(25, generator=torch.Generator().manual_seed(1))


def looked_at(score, threat: str, rows: int = 12):
    """Health of a model of two classes whose margin of class 1 over class 0 is `score` of the flat images; all labels are 0."""

    class Network(torch.nn.Module):
        def forward(self, x):
            margin = score(x.flatten(1))
            return torch.stack([-margin / 2, margin / 2], dim=1)

    x = 0.4 + 0.2 * torch.rand(rows, *SHAPE, generator=torch.Generator().manual_seed(2))
    labels = torch.zeros(rows, dtype=torch.int64)
    batch = Batch(images=x, labels=labels, targets=labels, ids=tuple(map(str, range(rows))), rows=np.arange(rows))
    oracle = Oracle(wrap(Network(), image_shape=SHAPE, device="cpu"), rows)
    return health(oracle, batch, Threat.parse(threat), seed=0, purpose="t"), oracle


@pytest.mark.parametrize("threat", ["linf:0.05", "l2:0.3", "l1:0.3"])
def test_a_linear_model_keeps_every_promise(threat):
    found, oracle = looked_at(lambda x: x @ W, threat)
    np.testing.assert_allclose(found.promise_kept, 1, rtol=2e-3)
    epsilon = Threat.parse(threat).epsilon
    dual = {"linf": W.abs().sum(), "l2:0": W.norm(), "l1:0": W.abs().max()}[threat[:4]]
    np.testing.assert_allclose(found.step_gain, epsilon * float(dual), rtol=2e-3)
    assert (found.random_gain < found.step_gain).all()
    assert not found.zero_gradient.any() and not found.moves.any()
    assert (oracle.forward == 2 + 2 * len(STEP_SIZES) + 4).all() and (oracle.backward == 1).all()


def test_a_gradient_of_half_the_size_keeps_it_twice():
    # The value of s, the slope of s / 2.
    found, _ = looked_at(lambda x: (x @ W) / 2 + (x @ W).detach() / 2, "linf:0.05")
    np.testing.assert_allclose(found.promise_kept, 2, rtol=4e-3)


def test_rounding_leaves_no_gradient_and_moves_all_the_same():
    found, _ = looked_at(lambda x: (8 * x).round() @ W, "linf:0.2")
    assert found.zero_gradient.all() and found.moves.all()
    assert (found.promise_kept == 0).all() and (found.step_gain == 0).all() and (found.random_gain != 0).all()


def test_a_constant_model_neither_has_gradients_nor_moves():
    found, _ = looked_at(lambda x: 0 * x.sum(dim=1), "linf:0.2")
    assert found.zero_gradient.all() and not found.moves.any()


def test_what_is_not_finite_counts_as_nothing():
    found, _ = looked_at(lambda x: torch.where(x.amax(dim=1) > 0.61, torch.nan, x @ W), "linf:0.2")
    for column in (found.promise_kept, found.step_gain, found.random_gain):
        assert np.isfinite(column).all()
    assert (found.step_gain == 0).any()
