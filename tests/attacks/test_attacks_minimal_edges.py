"""Models and examples on which there is nothing to follow, or nothing to do: a defined outcome, in bounded passes."""

from functools import partial

import numpy as np
import pytest
import torch
from minimum_norm import EVERY, WITH_TARGET, batch_of, linear

from audit.attacks.ball import distance
from audit.attacks.cw import cw
from audit.attacks.ddn import ddn
from audit.attacks.deepfool import deepfool
from audit.attacks.fab import fab
from audit.attacks.fmn import fmn
from audit.attacks.minimal import Goal, minimal, within
from audit.attacks.run import Oracle, verify
from audit.attacks.stages import stages
from audit.attacks.universal import applied, universal
from audit.errors import InputError
from audit.models.torch_module import wrap
from audit.profiles import Search
from audit.vocabulary import Norm, Threat

SHAPE = (1, 4, 4)
# Fewer steps than by default: here only the outcome counts.
ATTACKS = {
    "deepfool": deepfool,
    "fab": partial(fab, steps=10),
    "fmn": partial(fmn, steps=40),
    "ddn": partial(ddn, steps=40),
    "cw": partial(cw, searches=4, steps=25),
}


class Model(torch.nn.Module):
    """Logits of the mean m of an image, as the test needs them."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, x):
        return self.logits(x.flatten(1).mean(dim=1), x)


def flat(m, x):
    return torch.stack([0 * m + 1, 0 * m, 0 * m], dim=1)


def rounded(m, x):
    return torch.stack([(10 * (1 - m)).round() + 0 * m, 10 * m.round()], dim=1)


def infinite_slope(m, x):
    root = x.flatten(1).sqrt().mean(dim=1)
    return torch.stack([1 - root, root - 0.5], dim=1)


def tied(m, x):
    return torch.stack([1 - m, m], dim=1) - m.detach()[:, None]


def probabilities(m, x):
    return torch.stack([1.2 - m, m], dim=1).mul(8).log_softmax(dim=1)


def attacked(logits, images, name, norm, goal=Goal.ERROR):
    classifier = wrap(Model(logits), image_shape=SHAPE, device="cpu")
    batch = batch_of(images, torch.zeros(len(images), dtype=torch.long), torch.ones(len(images), dtype=torch.long))
    clean = Oracle(classifier, len(images)).logits(batch, images)
    return minimal(oracle := Oracle(classifier, len(images)), batch, clean, ATTACKS[name], norm, goal=goal), oracle


def unanswered(m, x):
    z = torch.stack([1 - m, m], dim=1)
    return torch.where((x[:, 0, 0, 0] > 0.94)[:, None] & (x[:, 0, 0, 0] < 0.96)[:, None], torch.nan, z)


@pytest.mark.parametrize("logits", [flat, rounded])
@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_without_gradients_nothing_is_found_and_the_images_are_the_clean_ones(logits, name, norm):
    images = torch.full((3, *SHAPE), 0.2)
    found, oracle = attacked(logits, images, name, norm)
    assert not found.found.any() and np.isinf(found.distance).all() and torch.equal(found.images, images)
    assert oracle.backward.max() <= 300


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_ties_probabilities_and_infinite_slopes_have_finite_outcomes(name, norm, goal):
    mixed = torch.full((2, *SHAPE), 0.2)
    mixed[0, 0, 0] = 0.0
    for logits, images in ((tied, torch.full((2, *SHAPE), 0.5)), (probabilities, mixed), (infinite_slope, mixed)):
        found, _ = attacked(logits, images, name, norm, goal)
        assert bool(found.images.isfinite().all()) and float(found.images.min()) >= 0 and float(found.images.max()) <= 1
        assert (found.distance[found.found] == distance(found.images, images, norm).numpy()[found.found]).all()
        if logits is not infinite_slope:
            assert found.found.all() and found.distance.max() < (0.6 if norm is Norm.LINF else 16 * 0.6)
        if logits is tied:
            assert found.distance.max() < 0.01


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_an_unanswered_row_is_given_up_and_harms_no_other(name, norm):
    images = torch.full((3, *SHAPE), 0.45)
    images[2, 0, 0, 0] = 0.95
    found, oracle = attacked(unanswered, images, name, norm)
    assert found.found[:2].all() and not found.found[2] and torch.equal(found.images[2], images[2])
    assert oracle.forward[2] <= 2 and oracle.forward[0] > 5


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_what_is_wrong_already_is_its_own_nearest_image(name, norm):
    classifier, batch, logits, _ = linear(SHAPE, 3, 12)
    labels = batch.labels.clone()
    labels[:5] = (labels[:5] + 1) % 3
    oracle = Oracle(classifier, 12)
    found = minimal(oracle, batch_of(batch.images, labels), logits, ATTACKS[name], norm)
    assert found.found.all() and (found.distance[:5] == 0).all() and (found.distance[5:] > 0).all()
    assert (oracle.forward[:5] == 0).all() and torch.equal(found.images[:5], batch.images[:5])
    # The attack alone sees it too, and stops at once.
    alone = ATTACKS[name](oracle, batch_of(batch.images, labels), norm)
    assert torch.equal(alone[:5], batch.images[:5]) and (oracle.forward[:5] == 1).all()


@pytest.mark.parametrize(("name", "norm"), [("cw", Norm.LINF), ("cw", Norm.L1), ("ddn", Norm.L1), ("deepfool", Norm.L1)])
def test_norms_that_a_method_lacks_are_refused(name, norm):
    classifier, batch, _, _ = linear(SHAPE, 3, 2)
    with pytest.raises(InputError, match="defined for"):
        ATTACKS[name](Oracle(classifier, 2), batch, norm)


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_no_example_is_no_work(name, norm):
    classifier, batch, _, _ = linear(SHAPE, 3, 2)
    assert ATTACKS[name](Oracle(classifier, 2), batch.take(torch.arange(0)), norm).shape == (0, *SHAPE)


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_within_a_ball_a_row_ends_at_its_first_image_inside_and_none_leaves_it(name, norm):
    classifier, batch, logits, _ = linear((3, 6, 6), 5, 20)
    free = minimal(full := Oracle(classifier, 20), batch, logits, ATTACKS[name], norm)
    threat = Threat(norm=norm, epsilon=float(np.median(free.distance)) * 1.1, written="x")
    attack = within(ATTACKS[name], aimed=False)
    verified = verify(oracle := Oracle(classifier, 20), batch, attack(oracle, batch, threat), threat)
    assert not verified.outside.any() and (verified.distance <= threat.epsilon).all()
    inside = free.distance < threat.epsilon * 0.99
    assert verified.broken[inside].all() and not verified.broken[free.distance > threat.epsilon * 1.2].any()
    assert oracle.backward[inside].mean() < 0.7 * full.backward.mean() or name == "deepfool"
    nothing = attack(oracle, batch, Threat(norm=norm, epsilon=0.0, written="0"))
    assert torch.equal(nothing, batch.images)


def test_the_searches_are_stages_of_an_arm():
    classifier, batch, logits, _ = linear((1, 6, 6), 4, 20)
    searches = (
        Search(attack="FAB", steps=10, target=1),
        *(Search(attack=name, steps=20) for name in ("FMN", "DDN", "C&W", "DeepFool")),
    )
    threat = Threat.parse("l2:0.3")
    found = stages(searches, 0, 4)
    assert [stage.name for stage in found] == ["FAB-10, target 1", "FMN-20", "DDN-20", "C&W-20", "DeepFool-20"]
    aimed = batch.aimed(logits.argsort(dim=1)[:, -2])
    for stage in found:
        verified = verify(oracle := Oracle(classifier, 20), aimed, stage.propose(oracle, aimed, threat), threat)
        assert 3 < verified.broken.sum() < 20 and not verified.outside.any()


@pytest.mark.parametrize(("name", "norm"), [pair for pair in WITH_TARGET if pair[0] != "fab"])
def test_passes_are_one_gradient_a_step(name, norm):
    classifier, batch, logits, _ = linear(SHAPE, 3, 5)
    minimal(oracle := Oracle(classifier, 5), batch, logits, ATTACKS[name], norm)
    steps = 1 + 4 * 25 if name == "cw" else 40
    assert (oracle.backward == steps).all() and (oracle.forward == steps + 1).all()


def test_fab_aimed_costs_one_gradient_a_step_whatever_the_number_of_classes():
    classifier, batch, logits, _ = linear(SHAPE, 30, 5)
    aimed = batch.aimed(logits.argsort(dim=1)[:, -2])
    fab(oracle := Oracle(classifier, 5), aimed, Norm.LINF, steps=8, goal=Goal.ERROR_BY_TARGET)
    assert (oracle.backward == 8).all() and (oracle.forward == 1 + 8 * 2 + 6).all()
    fab(oracle := Oracle(classifier, 5), batch, Norm.LINF, steps=8)
    assert (oracle.backward == 8 * 10).all()  # nine candidates and the label


@pytest.mark.parametrize("text", ["linf:0.05", "l2:0.5"])
def test_a_universal_perturbation_of_a_linear_model_is_its_dual_direction(text):
    classifier, batch, _, layer = linear((1, 6, 6), 2, 40)
    same = batch.take((batch.labels == 0).nonzero()[:, 0])
    threat = Threat.parse(text)
    delta = universal(Oracle(classifier, 40), same, threat, steps=20)
    w = (layer.weight[1] - layer.weight[0]).detach()
    assert float(distance(delta[None], 0 * delta[None], threat.norm)) <= threat.epsilon * (1 + 1e-6)
    best = threat.epsilon * (w.sign() if threat.norm is Norm.LINF else w / w.norm())

    def fooled(change):
        return int((classifier.logits(applied(same.images, change)).argmax(dim=1) != 0).sum())

    assert fooled(delta) >= fooled(best.view(1, 6, 6)) > fooled(torch.zeros(1, 6, 6)) == 0


def test_a_universal_perturbation_needs_images_a_ball_and_a_gradient():
    classifier, batch, _, _ = linear(SHAPE, 2, 3)
    for images, text in ((batch.take(torch.arange(0)), "l2:1"), (batch, "l1:1")):
        with pytest.raises(InputError, match="universal"):
            universal(Oracle(classifier, 3), images, Threat.parse(text))
    assert not universal(oracle := Oracle(classifier, 3), batch, Threat.parse("l2:0")).any() and oracle.forward.sum() == 0
    still = wrap(Model(flat), image_shape=SHAPE, device="cpu")
    batch = batch_of(batch.images, torch.zeros(3, dtype=torch.long))
    assert not universal(Oracle(still, 3), batch, Threat.parse("linf:0.1"), steps=3).any()
