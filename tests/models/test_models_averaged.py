"""A model that answers at random, as the mean of K calls: against one call of a model that does not, and by hand."""

import numpy as np
import pytest
import torch

from audit.models.averaged import AveragedClassifier
from audit.models.torch_module import wrap
from audit.vocabulary import Capability


class Alternating:
    """Answers from a list in turn: the same list of classifiers gives the same answers."""

    def __init__(self, *inner, lacks=()):
        self._inner, self._asked = inner, 0
        self.lacks = dict.fromkeys(lacks, "none")
        self.identity, self.classes, self.device = inner[0].identity, inner[0].classes, inner[0].device

    def _next(self):
        self._asked += 1
        return self._inner[(self._asked - 1) % len(self._inner)]

    def logits(self, images):
        scores = self._next().logits(images)
        return torch.nn.functional.one_hot(scores.argmax(dim=1), self.classes).float() if self.lacks else scores

    def loss_gradient(self, images, loss):
        return self._next().loss_gradient(images, loss)

    def jacobian(self, images):
        return self._next().jacobian(images)

    def jvp(self, images, directions):
        return self._next().jvp(images, directions)

    forward_passes = property(lambda self: sum(inner.forward_passes for inner in self._inner))
    backward_passes = property(lambda self: sum(inner.backward_passes for inner in self._inner))


def networks(count):
    found = []
    for place in range(count):
        with torch.random.fork_rng():
            torch.manual_seed(place)
            layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
        found.append(wrap(layers, image_shape=(1, 3, 4), device="cpu"))
    return found


IMAGES = torch.rand(6, 1, 3, 4, generator=torch.Generator().manual_seed(0))


def test_the_answer_is_the_mean_probability():
    inner = networks(3)
    averaged = AveragedClassifier(Alternating(*inner), 3)
    expected = torch.stack([classifier.logits(IMAGES).softmax(dim=1) for classifier in inner]).mean(dim=0)
    np.testing.assert_allclose(averaged.logits(IMAGES).softmax(dim=1), expected, atol=1e-6)
    assert averaged.identity.averaged == 3 and "mean of 3 calls" in averaged.identity.cautions[-1]
    before = averaged.forward_passes
    averaged.logits(IMAGES)
    assert averaged.forward_passes == before + 3 * len(IMAGES)


def test_gradients_are_means_and_the_jacobian_is_the_slope_of_the_mean():
    inner = networks(2)
    averaged = AveragedClassifier(Alternating(*inner), 2)

    def loss(logits, rows):
        return logits[:, 0] - logits[:, 1]

    _, values, gradient = averaged.loss_gradient(IMAGES, loss)
    single = [classifier.loss_gradient(IMAGES, loss) for classifier in inner]
    np.testing.assert_allclose(gradient, (single[0][2] + single[1][2]) / 2, atol=1e-6)
    np.testing.assert_allclose(values, (single[0][1] + single[1][1]) / 2, atol=1e-6)
    logits, jacobian = averaged.jacobian(IMAGES)
    h, direction = 1e-2, torch.randn(IMAGES.shape, generator=torch.Generator().manual_seed(1))
    up, down = averaged.logits(IMAGES + h * direction), averaged.logits(IMAGES - h * direction)
    slope = (jacobian * direction.flatten(1)[:, None]).sum(dim=2)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), atol=2e-3)
    np.testing.assert_allclose(averaged.jvp(IMAGES, direction)[1], slope, atol=1e-5)
    np.testing.assert_allclose(logits, averaged.logits(IMAGES), atol=1e-6)


def test_a_model_that_is_not_random_is_its_own_mean():
    (inner,) = networks(1)
    averaged = AveragedClassifier(Alternating(inner), 4)
    np.testing.assert_allclose(averaged.logits(IMAGES), inner.logits(IMAGES).log_softmax(dim=1), atol=1e-5)
    np.testing.assert_allclose(
        averaged.loss_gradient(IMAGES, lambda z, rows: z[:, 0])[2],
        inner.loss_gradient(IMAGES, lambda z, rows: z[:, 0])[2],
        atol=1e-6,
    )


@pytest.mark.parametrize("calls", [3, 4])
def test_labels_are_put_to_the_vote(calls):
    inner = networks(3)
    averaged = AveragedClassifier(Alternating(*inner, lacks=(Capability.SCORES, Capability.GRADIENTS)), calls)
    asked = [inner[place % 3].logits(IMAGES).argmax(dim=1) for place in range(calls)]
    votes = torch.stack([torch.bincount(torch.stack(asked)[:, row], minlength=3) for row in range(len(IMAGES))])
    answer = averaged.logits(IMAGES)
    assert torch.equal(answer.argmax(dim=1), votes.argmax(dim=1)) and torch.equal(answer.sum(dim=1), torch.ones(6))
    assert set(answer.unique().tolist()) == {0.0, 1.0}
