"""The batched Square against a slow one that loops over examples and pixels and reads the same random numbers."""

import math

import numpy as np
import pytest
import torch
import trained_digits

from audit.attacks.randomness import generator
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square, window_side
from audit.models.torch_module import wrap
from audit.vocabulary import Threat


def slow_square(logits_of, x, label, epsilon, queries, source):
    c, h, w = x.shape
    low, high = np.maximum(x - epsilon, 0), np.minimum(x + epsilon, 1)

    def score(image):
        z = logits_of(image)
        return max(z[k] for k in range(len(z)) if k != label) - z[label]

    signs = torch.rand((c, 1, w), generator=source).numpy()
    best = np.empty_like(x)
    for k in range(c):
        for column in range(w):
            best[k, :, column] = high[k, :, column] if signs[k, 0, column] < 0.5 else low[k, :, column]
    value = score(best)
    draws = torch.rand((queries - 1, 2 + c), generator=source).numpy()
    for query in range(1, queries):
        side, u = window_side(query, queries, h, w), draws[query - 1]
        top, left = int(u[0] * (h - side + 1)), int(u[1] * (w - side + 1))
        proposal, flipped = best.copy(), best.copy()
        for k in range(c):
            window = (k, slice(top, top + side), slice(left, left + side))
            proposal[window], flipped[window] = (high[window], low[window]) if u[2 + k] < 0.5 else (low[window], high[window])
        if np.array_equal(proposal, best):
            proposal = flipped
        if (reached := score(proposal)) > value:
            best, value = proposal, reached
    return best


def test_square_equals_the_slow_reference():
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(4 * 5 * 4, 5))
    classifier = wrap(network, image_shape=(3, 7, 6), device="cpu")
    x = torch.rand(5, 3, 7, 6)
    labels = classifier.logits(x).argmax(dim=1)
    batch = Batch(images=x, labels=labels, targets=labels, ids=tuple("abcde"), rows=np.arange(5))
    threat = Threat.parse("linf:0.1")
    fast = square(Oracle(classifier, 5), batch, threat, queries=60, seed=4, purpose="p", stop_early=False)
    for i in range(5):
        slow = slow_square(
            lambda image: classifier.logits(torch.from_numpy(image)[None])[0].tolist(),
            x[i].numpy(),
            int(labels[i]),
            np.float32(0.1),
            60,
            generator(4, batch.ids[i], "p"),
        )
        np.testing.assert_allclose(fast[i].numpy(), slow, atol=2e-7)


def test_early_stop_breaks_the_same_examples():
    classifier, threat = wrap(trained_digits.digits_cnn(), image_shape=(1, 8, 8), device="cpu"), Threat.parse("linf:0.15")
    batch = Batch.of(trained_digits.digits(), classifier.device).take(torch.arange(60))
    results = []
    for stop in (True, False):
        proposals = square(oracle := Oracle(classifier, 60), batch, threat, queries=100, seed=0, purpose="p", stop_early=stop)
        results.append((verify(oracle, batch, proposals, threat).broken, oracle.forward.sum()))
    assert (results[0][0] == results[1][0]).all() and 5 < results[0][0].sum() < 60
    assert results[0][1] < results[1][1]


@pytest.mark.parametrize("size", [(8, 8), (28, 28), (224, 200)])
def test_window_follows_the_published_schedule(size):
    h, w = size
    sides = [window_side(query, 5000, h, w) for query in range(1, 5000)]
    assert sides == sorted(sides, reverse=True) and sides[-1] >= 1
    assert sides[4] == min(round(math.sqrt(0.8 * h * w)), h, w)


@pytest.mark.parametrize("text", ["linf:0.1", "l2:0.1", "l1:0.1"])
def test_tiny_images(text):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(2, 2))
    classifier = wrap(network, image_shape=(1, 1, 2), device="cpu")
    batch = Batch(
        images=torch.rand(2, 1, 1, 2), labels=torch.tensor([0, 1]), targets=torch.tensor([0, 1]), ids=("a", "b"), rows=np.arange(2)
    )
    threat = Threat.parse(text)
    proposals = square(oracle := Oracle(classifier, 2), batch, threat, queries=20, seed=0, purpose="p", stop_early=False)
    assert not verify(oracle, batch, proposals, threat).outside.any()
