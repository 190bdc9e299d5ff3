"""On a linear model the best attack is known: the margin can drop by epsilon times the dual norm of w, and no further."""

import numpy as np
import pytest
import torch

from audit.attacks.fgsm import fgsm
from audit.attacks.losses import margin
from audit.attacks.pgd import pgd
from audit.attacks.random_noise import random_noise
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square
from audit.models.torch_module import wrap
from audit.vocabulary import Threat

SHAPE = (1, 6, 6)
ATTACKS = {
    "fgsm": fgsm,
    "pgd": lambda o, b, t: pgd(o, b, t, loss="margin", steps=20, seed=0, purpose="t", stop_early=False),
    "pgd cross-entropy": lambda o, b, t: pgd(o, b, t, loss="cross_entropy", steps=20, seed=0, purpose="t", stop_early=False),
    "pgd, early stop": lambda o, b, t: pgd(o, b, t, loss="margin", steps=20, seed=0, purpose="t", stop_early=True),
    "square": lambda o, b, t: square(o, b, t, queries=40, seed=0, purpose="t", stop_early=False),
    "noise": lambda o, b, t: random_noise(o, b, t, draws=6, seed=0, purpose="t"),
}
GRADIENT = ("fgsm", "pgd", "pgd cross-entropy")


def everywhere(linf: str, l2: str) -> list[tuple[str, str]]:
    """Every attack at every norm it knows."""
    return [(name, linf) for name in ATTACKS] + [(name, l2) for name in ATTACKS]


def binary(scale: float = 1.0):
    """A linear model of two classes whose margin of class 0 is w.x + b, and images away from the box."""
    source = torch.Generator().manual_seed(3)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 2))
    w = scale * torch.randn(36, generator=source)
    x = 0.35 + 0.3 * torch.rand(20, *SHAPE, generator=source)
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([w / 2, -w / 2]))
        offset = float((x.flatten(1) @ w).mean())
        network[1].bias.copy_(torch.tensor([-offset / 2, offset / 2]))
    gaps = x.flatten(1) @ w - offset
    labels = (gaps < 0).long()
    batch = Batch(images=x, labels=labels, targets=labels, ids=tuple(map(str, range(20))), rows=np.arange(20))
    return wrap(network, image_shape=SHAPE, device="cpu"), batch, w, gaps.abs()


@pytest.mark.parametrize("text", ["linf:0.03", "l2:0.2"])
@pytest.mark.parametrize("name", GRADIENT)
def test_gradient_attacks_reach_the_dual_norm(name, text):
    classifier, batch, w, gaps = binary()
    threat = Threat.parse(text)
    verified = verify(oracle := Oracle(classifier, 20), batch, ATTACKS[name](oracle, batch, threat), threat)
    drop = threat.epsilon * float(w.abs().sum() if text.startswith("linf") else w.norm())
    reached = margin(torch.from_numpy(verified.logits), batch.labels) + gaps
    np.testing.assert_allclose(reached.numpy(), drop, rtol=2e-3)
    assert not verified.outside.any() and verified.answered.all()


@pytest.mark.parametrize(("name", "text"), everywhere("linf:0.008", "l2:0.06"))
def test_success_only_where_the_boundary_is_within_epsilon(name, text):
    classifier, batch, w, gaps = binary()
    threat = Threat.parse(text)
    nearest = gaps / float(w.abs().sum() if text.startswith("linf") else w.norm())
    verified = verify(oracle := Oracle(classifier, 20), batch, ATTACKS[name](oracle, batch, threat), threat)
    within = (nearest < threat.epsilon).numpy()
    assert 2 < within.sum() < 18
    assert not (verified.broken & ~within).any()
    if name.startswith(("pgd", "fgsm")):
        assert (verified.broken == within).all()


@pytest.mark.parametrize(("name", "text"), everywhere("linf:0", "l2:0.0"))
def test_epsilon_zero_returns_the_image_itself(name, text):
    classifier, batch, _, _ = binary()
    oracle = Oracle(classifier, 20)
    assert torch.equal(ATTACKS[name](oracle, batch, Threat.parse(text)), batch.images)
    assert oracle.forward.sum() == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_zero_gradients_and_flat_outputs_end_quietly(name):
    classifier, batch, _, _ = binary(scale=0.0)
    threat = Threat.parse("linf:0.1")
    proposals = ATTACKS[name](Oracle(classifier, 20), batch, threat)
    assert bool(proposals.isfinite().all())


def test_pgd_margin_does_not_care_about_the_scale_of_logits():
    threat = Threat.parse("linf:0.008")
    broken = []
    for scale in (1.0, 1000.0):
        classifier, batch, _, _ = binary(scale)
        verified = verify(oracle := Oracle(classifier, 20), batch, ATTACKS["pgd"](oracle, batch, threat), threat)
        broken.append(verified.broken)
    assert (broken[0] == broken[1]).all() and broken[0].any()


def test_pass_counts():
    classifier, batch, _, _ = binary()
    threat = Threat.parse("linf:0.03")
    for name, forward, backward in (("fgsm", 1, 1), ("pgd", 21, 20), ("square", 40, 0)):
        ATTACKS[name](oracle := Oracle(classifier, 20), batch, threat)
        assert (oracle.forward == forward).all() and (oracle.backward == backward).all()
    ATTACKS["pgd, early stop"](oracle := Oracle(classifier, 20), batch, threat)
    assert oracle.forward.min() < 21 and classifier.forward_passes > 0
