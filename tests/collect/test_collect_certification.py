"""Smoothing a linear model, whose answers in noise are known in closed form, and certificates against a search for the bound."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import small_run
import torch

from audit.attacks.randomness import generator
from audit.collect import COLLECTORS, certification
from audit.data import Chunk
from audit.errors import Undefined
from audit.evidence import Certification, Evidence, EvidenceKey, EvidenceStore
from audit.metrics.certification import average_certified_radius, certified_accuracy, radii
from audit.models.torch_module import wrap
from audit.settings import Settings

SETTINGS = replace(Settings.of("quick"), profile=replace(small_run.SMALL, certified_samples=8))


def counts_of(**changes) -> Certification:
    written = {
        "sigma": 0.25,
        "alpha": 0.001,
        "looked": 100,
        "drawn": 1000,
        "positions": np.arange(4),
        "labels": np.array([0, 0, 0, 0]),
        "top": np.array([0, 0, 0, 1]),
        "agreed": np.array([1000, 900, 500, 1000]),
        "right": np.array([1000, 900, 500, 0]),
        "clean": np.array([True, True, False, False]),
        "queries": np.full(4, 1100),
    }
    return Certification(**{**written, **changes})


def collected(network, images, labels, settings=SETTINGS, block_rows=64) -> Certification:
    classifier = wrap(network, image_shape=images.shape[1:], device="cpu", block_rows=block_rows)
    count = len(labels)
    chunk = Chunk(positions=np.arange(count), ids=np.array([f"x{i}" for i in range(count)]), labels=labels, images=images)
    predictions = COLLECTORS[Evidence.PREDICTIONS].collect(classifier, chunk, settings, EvidenceStore(), None)
    needed = EvidenceStore({EvidenceKey(kind=Evidence.PREDICTIONS): predictions})
    return COLLECTORS[Evidence.CERTIFICATION].collect(classifier, chunk, settings, needed, None)


def test_a_linear_model_gets_its_closed_form(monkeypatch):
    """P(right in noise) = Phi(margin / (sigma |w|)), so the certified radius tends to the distance to the plane, from below."""
    monkeypatch.setattr(certification, "SIGMA", 0.05)
    monkeypatch.setattr(certification, "DRAWN", 20000)
    w = torch.tensor([1.0, -2.0, 0.5, 1.5])
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([w / 2, -w / 2]))
        network[1].bias.copy_(torch.tensor([-w.sum() / 4, w.sum() / 4]))
    distances = np.array([0.02, 0.04, 0.06, 0.08, 0.1])
    unit = (w / w.norm()).numpy()
    # Far enough from the edge of the range that clipping changes nothing.
    images = (0.5 + distances[:, None] * unit).astype(np.float32).reshape(-1, 1, 2, 2)
    found = collected(network, images, np.zeros(5, dtype=np.int64), block_rows=4096)
    assert (found.top == 0).all() and found.drawn == 20000
    expected = scipy.stats.norm.cdf(distances / 0.05)
    np.testing.assert_allclose(found.agreed / 20000, expected, atol=4 * np.sqrt(0.25 / 20000))
    certified = radii(found)
    assert (certified < distances).all()
    np.testing.assert_allclose(certified, distances, rtol=0.06, atol=5e-4)


def test_the_bound_is_the_one_sided_clopper_pearson_bound():
    evidence = counts_of(agreed=np.array([1000, 937, 600, 560]))
    for count, radius in zip(evidence.agreed, radii(evidence), strict=True):
        exact = scipy.stats.binomtest(int(count), 1000, alternative="greater").proportion_ci(0.999).low
        # The p at which as many agreeing copies, or more, have probability alpha.
        searched = scipy.optimize.brentq(
            lambda p, c=count: scipy.stats.binom.sf(c - 1, 1000, p) - 0.001, 1e-9, 1 - 1e-9, xtol=1e-14
        )
        assert exact == pytest.approx(searched, rel=1e-9)
        assert radius == pytest.approx(0.25 * scipy.stats.norm.ppf(searched) if searched > 0.5 else -1.0, rel=1e-7)


def test_certified_accuracy_by_hand():
    evidence = counts_of()
    # 1000 of 1000: .001 ** .001 = .99312, .25 * 2.4636; 900: bound .868, .25 * 1.117; 500 abstains; the fourth is wrong.
    values = {r: certified_accuracy(certification=evidence, variant=f"radius_{r}").value for r in ("0", "0.2", "0.3", "0.6")}
    assert values == {"0": 0.5, "0.2": 0.5, "0.3": 0.25, "0.6": 0.25}
    second = 0.25 * scipy.stats.norm.ppf(scipy.stats.beta.ppf(0.001, 900, 101))
    assert average_certified_radius(certification=evidence).value == pytest.approx((0.25 * 2.46352 + second) / 4, rel=1e-4)
    text = " ".join(certified_accuracy(certification=evidence, variant="radius_0").notes)
    for words in (
        *("of the smoothed classifier: sigma = 0.25, n0 = 100, n = 1000, alpha = 0.001", "largest provable radius is 0.616 in L2"),
        *("1 of 4 abstain", "at most 0.003 of 3 certificates are expected to be false"),
        *("right on 60.0% of the noisy copies and on 50.0% of these images", "not trained with such noise"),
    ):
        assert words in text


def test_more_agreement_never_certifies_less():
    evidence = counts_of(agreed=np.array([0, 500, 999, 1000]), top=np.zeros(4, dtype=int))
    found = radii(evidence)
    assert (np.diff(found) >= 0).all() and found[0] == found[1] == -1.0 and found[3] <= 0.616
    values = [certified_accuracy(certification=evidence, variant=f"radius_{r}").value for r in ("0", "0.1", "0.3", "0.6")]
    assert values == sorted(values, reverse=True)


def test_nothing_to_certify_is_undefined():
    empty = {name: np.zeros(0, dtype=int) for name in ("positions", "labels", "top", "agreed", "right", "queries")}
    with pytest.raises(Undefined, match="no example"):
        certified_accuracy(certification=counts_of(**empty, clean=np.zeros(0, dtype=bool)), variant="radius_0")


def test_copies_are_drawn_for_the_example_and_counted_once():
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    images = torch.rand(12, 1, 2, 2, generator=torch.Generator().manual_seed(0)).numpy()
    labels = np.arange(12) % 3
    found = collected(network, images, labels)
    assert found.positions.tolist() == list(range(8)) and (found.queries == 1100).all()

    for row in (0, 7):
        votes = []
        for purpose, draws in (("certification, first look", 100), ("certification", 1000)):
            source = generator(0, f"x{row}", purpose)
            noise = torch.randn((draws, 1, 2, 2), generator=source)
            points = (torch.from_numpy(images[row]) + 0.25 * noise).clamp(0, 1)
            votes.append(np.bincount(network(points).argmax(dim=1).numpy(), minlength=3))
        assert found.top[row] == votes[0].argmax()
        assert found.agreed[row] == votes[1][found.top[row]] and found.right[row] == votes[1][labels[row]]


def test_a_copy_without_an_answer_agrees_with_nothing(monkeypatch):
    monkeypatch.setattr(certification, "DRAWN", 200)

    class Fragile(torch.nn.Module):
        def forward(self, x):
            scores = torch.stack([x.flatten(1)[:, 0], 1 - x.flatten(1)[:, 0]], dim=1)
            return torch.where((x.flatten(1)[:, 1] > 0.8)[:, None], torch.nan, scores)

    images = np.full((2, 1, 1, 2), 0.75, dtype=np.float32)
    found = collected(Fragile(), images, np.zeros(2, dtype=np.int64), block_rows=1)
    share = scipy.stats.norm.cdf(1.0) * scipy.stats.norm.cdf(0.2)
    np.testing.assert_allclose(found.agreed / 200, share, atol=0.12)
