"""Square, NES, SPSA and N-Attack: against the closed form of a linear model, their budgets, and each example on its own."""

import numpy as np
import pytest
import torch
from two_class_linear import batch_of, dual_norm, linear

from audit.attacks.losses import margin
from audit.attacks.n_attack import n_attack
from audit.attacks.nes import nes
from audit.attacks.run import Oracle, verify
from audit.attacks.spsa import spsa
from audit.attacks.square import square
from audit.models.torch_module import wrap
from audit.vocabulary import Threat

ATTACKS = {"square": square, "nes": nes, "spsa": spsa, "n_attack": n_attack}
THREATS = ("linf:0.03", "l2:0.2", "l1:0.5")
# Share of the largest possible drop of the margin that 600 queries reach on every image; the pyramids of Square are no less than
# three pixels wide and cannot follow random weights, and Adam spreads over all pixels where L1 wants few.
REACHED = {
    "square": (0.99, 0.6, 0.55),
    "nes": (0.75, 0.8, 0.8),
    "spsa": (0.7, 0.75, 0.4),
    "n_attack": (0.95, 0.9, 0.9),
}


def attacked(name, classifier, batch, threat, *, queries=600, stop_early=False, seed=0):
    oracle = Oracle(classifier, len(batch))
    proposals = ATTACKS[name](oracle, batch, threat, queries=queries, seed=seed, purpose="p", stop_early=stop_early)
    asked = oracle.forward.copy()
    return verify(oracle, batch, proposals, threat), asked, proposals


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("name", ATTACKS)
def test_the_margin_falls_nearly_as_far_as_it_can(name, place):
    classifier, batch, w, gaps = linear()
    threat = Threat.parse(THREATS[place])
    verified, asked, _ = attacked(name, classifier, batch, threat)
    share = (margin(torch.from_numpy(verified.logits), batch.labels) + gaps) / (threat.epsilon * dual_norm(w, threat.norm))
    assert float(share.max()) <= 1 + 1e-5 and float(share.min()) > REACHED[name][place]
    assert not verified.outside.any() and asked.max() <= 600 and asked.min() > 540


@pytest.mark.parametrize("text", THREATS)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_example_is_attacked_alone_as_in_company(name, text):
    classifier, batch, _, _ = linear((2, 5, 5))
    threat = Threat.parse(text)
    threat = threat.at(threat.epsilon / 4)
    _, asked, whole = attacked(name, classifier, batch, threat, queries=160, stop_early=True)
    assert asked.min() < asked.max(), "some must stop early, or nothing is tested"
    order = torch.tensor([7, 3, 11, 0])
    oracle = Oracle(classifier, len(batch))
    part = ATTACKS[name](oracle, batch.take(order), threat, queries=160, seed=0, purpose="p", stop_early=True)
    assert torch.equal(part, whole[order])
    np.testing.assert_array_equal(oracle.forward[order.numpy()], asked[order.numpy()])


@pytest.mark.parametrize("text", THREATS)
@pytest.mark.parametrize("name", ATTACKS)
def test_early_stop_breaks_the_same_examples(name, text):
    classifier, batch, w, gaps = linear()
    threat = Threat.parse(text)
    threat = threat.at(float(gaps.median()) / dual_norm(w, threat.norm) * 1.5)
    first, asked, _ = attacked(name, classifier, batch, threat, queries=300, stop_early=True)
    second, full, _ = attacked(name, classifier, batch, threat, queries=300)
    if name in ("square", "n_attack"):  # the others shrink nothing but their random numbers with the examples left
        np.testing.assert_array_equal(first.broken, second.broken)
    assert 0 < first.broken.sum() < 12 and asked.sum() < full.sum()


@pytest.mark.parametrize("name", ATTACKS)
def test_outcomes_at_the_edges_are_defined(name):
    classifier, batch, _, _ = linear()
    for text in ("linf:0", "l2:0", "l1:0"):
        verified, asked, proposals = attacked(name, classifier, batch, Threat.parse(text))
        assert torch.equal(proposals, batch.images) and asked.sum() == 0
    # Epsilon 1 reaches every image, a constant model none; one pixel and three channels of it are an image too.
    verified, _, _ = attacked(name, classifier, batch, Threat.parse("linf:1"), queries=300)
    assert verified.broken.all()
    constant, batch, _, _ = linear(scale=0.0)
    for text in THREATS:
        verified, asked, proposals = attacked(name, constant, batch, Threat.parse(text), queries=120)
        assert bool(proposals.isfinite().all()) and not verified.outside.any() and asked.max() <= 120
        assert attacked(name, constant, batch, Threat.parse(text), queries=1)[1].max() <= 1
    for shape in ((1, 1, 1), (3, 1, 1), (1, 1, 7), (1, 2, 3)):
        classifier, batch, _, _ = linear(shape)
        for text in THREATS:
            verified, _, proposals = attacked(name, classifier, batch, Threat.parse(text), queries=120)
            assert bool(proposals.isfinite().all()) and not verified.outside.any()


@pytest.mark.parametrize("text", THREATS)
@pytest.mark.parametrize("name", ATTACKS)
def test_unanswered_points_are_neither_kept_nor_fatal(name, text):
    class Fragile(torch.nn.Module):
        def forward(self, x):
            z = torch.stack([x[:, 0, 0, 0], 1 - x[:, 0, 0, 0]], dim=1)
            return torch.where((x[:, 0, 1, 1] > 0.5003)[:, None], torch.nan, z)

    images = torch.full((3, 1, 4, 4), 0.5)
    images[:, 0, 0, 0] = torch.tensor([0.95, 0.53, 0.95])
    batch = batch_of(images, torch.zeros(3, dtype=torch.long))
    oracle = Oracle(wrap(Fragile(), image_shape=(1, 4, 4), device="cpu"), 3)
    proposals = ATTACKS[name](oracle, batch, Threat.parse(text), queries=220, seed=0, purpose="p", stop_early=True)
    assert bool(proposals.isfinite().all()) and oracle.unanswered.any() and oracle.forward.max() <= 220
