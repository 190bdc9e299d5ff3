import numpy as np
import pytest
import torch

from audit.attacks.losses import cross_entropy, logit_margin, margin
from audit.attacks.run import Batch, Oracle, verify
from audit.models.torch_module import wrap
from audit.vocabulary import Threat


class Fragile(torch.nn.Module):
    """Logits (1 - mean, mean); NaN for images whose first pixel is above 0.9."""

    def forward(self, x):
        mean = x.flatten(1).mean(dim=1)
        z = torch.stack([1 - mean, mean], dim=1)
        return torch.where((x[:, 0, 0, 0] > 0.9)[:, None], torch.nan, z)


class Kinked(torch.nn.Module):
    """The square root has an infinite gradient at 0."""

    def forward(self, x):
        value = x.flatten(1).sqrt().mean(dim=1)
        return torch.stack([value, 1 - value], dim=1)


@pytest.fixture
def fragile():
    x = torch.full((7, 1, 4, 4), 0.25)
    x[[2, 5], 0, 0, 0] = 0.95
    batch = Batch(
        images=x,
        labels=torch.zeros(7, dtype=torch.long),
        targets=torch.zeros(7, dtype=torch.long),
        ids=tuple("abcdefg"),
        rows=np.arange(3, 10),
    )
    return wrap(Fragile(), image_shape=(1, 4, 4), device="cpu"), batch


def test_rows_without_an_answer_are_set_aside_and_the_others_unharmed(fragile):
    classifier, batch = fragile
    oracle = Oracle(classifier, 12)
    logits = oracle.logits(batch, batch.images)
    assert logits.isnan().any(dim=1).tolist() == [False, False, True, False, False, True, False]
    assert np.flatnonzero(oracle.unanswered).tolist() == [5, 8]
    assert oracle.forward.tolist() == [0] * 3 + [1] * 7 + [0] * 2
    good = torch.tensor([0, 1, 3, 4, 6])
    assert torch.equal(logits[good], classifier.logits(batch.images[good]))
    logits, gradient = oracle.gradient(batch, batch.images, logit_margin)
    assert logits[2].isnan().all() and bool(gradient.isfinite().all()) and bool((gradient[2] == 0).all())
    assert torch.equal(
        gradient[good], classifier.loss_gradient(batch.images[good], lambda z, r: margin(z, batch.labels[good][r]))[2]
    )


def test_gradients_that_are_not_finite_do_not_stop_the_others():
    x = torch.full((3, 1, 4, 4), 0.25)
    x[1] = 0.0
    batch = Batch(
        images=x,
        labels=torch.zeros(3, dtype=torch.long),
        targets=torch.zeros(3, dtype=torch.long),
        ids=tuple("abc"),
        rows=np.arange(3),
    )
    oracle = Oracle(wrap(Kinked(), image_shape=(1, 4, 4), device="cpu"), 3)
    _, gradient = oracle.gradient(batch, batch.images, logit_margin)
    assert bool(gradient.isfinite().all()) and bool((gradient[[0, 2]] != 0).all())


def test_proposals_outside_are_flagged_clipped_and_asked_again(fragile):
    classifier, batch = fragile
    threat = Threat.parse("linf:0.1")
    x = batch.images
    proposals = torch.stack([x[0] + 0.05, x[1] + 0.2, x[2], x[3] - 0.3, x[4] + 0.1 + 5e-7, x[5], torch.full_like(x[6], torch.nan)])
    verified = verify(Oracle(classifier, 10), batch, proposals, threat)
    assert verified.outside.tolist() == [False, True, False, True, False, False, True]
    assert verified.distance.max() <= threat.epsilon
    assert verified.answered.tolist() == [True, True, False, True, True, False, True]
    assert not verified.broken.any()
    np.testing.assert_allclose(verified.logits[1], [1 - 0.35, 0.35], atol=1e-6)
    assert torch.equal(verified.images[6], x[6])


def test_only_the_models_answer_counts():
    x = torch.full((1, 1, 4, 4), 0.45)
    batch = Batch(
        images=x, labels=torch.zeros(1, dtype=torch.long), targets=torch.zeros(1, dtype=torch.long), ids=("a",), rows=np.arange(1)
    )
    oracle = Oracle(wrap(Fragile(), image_shape=(1, 4, 4), device="cpu"), 1)
    # Far outside the proposal is misclassified; inside the ball it is not.
    assert not verify(oracle, batch, x + 0.4, Threat.parse("linf:0.01")).broken[0]
    assert verify(oracle, batch, x + 0.4, Threat.parse("linf:0.1")).broken[0]


def test_losses_against_autograd_free_numpy():
    z = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 0, 1])
    p = np.exp(z.numpy()) / np.exp(z.numpy()).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cross_entropy(z, y, y).numpy(), -np.log(p[np.arange(6), y]))
    slow = [max(z[i, k] for k in range(4) if k != y[i]) - z[i, y[i]] for i in range(6)]
    np.testing.assert_allclose(margin(z, y).numpy(), slow)
