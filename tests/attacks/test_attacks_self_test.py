"""The self-test finds sound attacks near the optimum and weak ones far from it, and leaves no attack out."""

import numpy as np
import pytest

from audit.attacks import self_test as module
from audit.attacks.ball import Ball
from audit.attacks.self_test import TRIALS, TRIALS_OF_LABELS, Trial, self_test
from audit.attacks.stages import ATTACKS
from audit.profiles import NOISE, Search
from audit.vocabulary import Norm


@pytest.fixture
def tested(monkeypatch):
    """Runs the self-test on other attacks than its own."""

    def run(*attacks: Trial, **built):
        with monkeypatch.context() as patch:
            patch.setattr(module, "TRIALS", attacks)
            patch.setattr("audit.attacks.stages.ATTACKS", {**ATTACKS, **built})
            return self_test.__wrapped__(labels_only=False)

    return run


def test_every_attack_that_searches_is_tested_and_close_to_the_optimum():
    needed = self_test(labels_only=True)
    trials = TRIALS + TRIALS_OF_LABELS
    assert {trial.search.attack for trial in trials} == set(ATTACKS) - {NOISE}
    assert len(needed) == sum(len(trial.norms) for trial in trials)
    assert set(needed) - set(self_test(labels_only=False)) == {
        "HopSkipJump-1000, L∞",
        "HopSkipJump-1000, L2",
        "boundary attack-1000, L2",
    }
    # No attack is better than the optimum, but for float32.
    assert all(0.999 < ratio <= 1.25 for ratio in needed.values())
    for name in ("FGSM, L∞", "FGSM, L2", "FGSM, L1", "PGD-10 margin, L2"):
        assert needed[name] == pytest.approx(1, abs=1e-3)


def test_a_weak_attack_is_found_out(tested):
    few = Trial(search=Search(attack="Square", steps=2), norms=(Norm.LINF,))
    (ratio,) = tested(few).values()
    assert ratio > 1.25
    idle = Trial(search=Search(attack="idle"), norms=(Norm.L2,))
    assert tested(idle, idle=lambda search, seed, purpose: lambda o, batch, threat: batch.images.clone()) == {"idle, L2": np.inf}


@pytest.mark.parametrize("norm", list(Norm))
def test_the_smallest_change_is_judged_by_its_length(tested, norm):
    """On the bundled model the boundary is at one distance: a step straight towards it of 1.2 times that, and one that is short."""
    classifier, batch, weights = module._linear_model()
    lead = 0.2
    dual = {Norm.LINF: weights.abs().sum(), Norm.L2: weights.norm(), Norm.L1: weights.abs().max()}[norm]

    def stepping(multiple):
        def attack(oracle, batch, threat):
            ball = Ball.around(batch.images, threat.at(float(multiple * lead / dual)))
            return ball.farthest(-weights.view(1, 1, 4, 4).expand_as(batch.images))

        return lambda search, seed, purpose: attack

    logits = classifier.logits(batch.images)
    np.testing.assert_allclose((logits[:, 0] - logits[:, 1]).numpy(), lead, atol=1e-5)
    search = Trial(search=Search(attack="step"), norms=(norm,), smallest=True)
    assert next(iter(tested(search, step=stepping(1.2)).values())) == pytest.approx(1.2, rel=1e-3)
    assert next(iter(tested(search, step=stepping(0.9)).values())) == np.inf
