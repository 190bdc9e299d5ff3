"""HopSkipJump and the boundary attack: against the nearest boundary of a linear model, foolbox, and each example on its own."""

from functools import partial

import foolbox
import numpy as np
import pytest
import torch
import trained_digits
from two_class_linear import batch_of, dual_norm, linear

from audit.attacks.ball import distance
from audit.attacks.boundary import boundary_attack
from audit.attacks.hop_skip_jump import hop_skip_jump
from audit.attacks.label_only import toward
from audit.attacks.minimal import inside
from audit.attacks.run import Oracle, verify
from audit.attacks.stages import stages
from audit.models.torch_module import wrap
from audit.profiles import Search
from audit.vocabulary import Norm, Threat

ATTACKS = {
    "HopSkipJump linf": (Norm.LINF, partial(hop_skip_jump, norm=Norm.LINF)),
    "HopSkipJump l2": (Norm.L2, partial(hop_skip_jump, norm=Norm.L2)),
    "HopSkipJump l1": (Norm.L1, partial(hop_skip_jump, norm=Norm.L1)),
    "boundary": (Norm.L2, boundary_attack),
}


class OnlyLabels:
    """A classifier that says nothing but the class, in one-hot rows."""

    def __init__(self, inner):
        self._inner = inner
        self.classes, self.device = inner.classes, inner.device

    def logits(self, images):
        return torch.nn.functional.one_hot(self._inner.logits(images).argmax(dim=1), self.classes).float()


def closest(name, classifier, batch, queries, **options):
    norm, attack = ATTACKS[name]
    oracle = Oracle(OnlyLabels(classifier), len(batch))
    images = attack(oracle, batch, queries=queries, seed=0, purpose="p", **options)
    return images, distance(images, batch.images, norm), oracle


# What the closest of 1,500 questions is, more of them only improve: a tenth of the budgets that published bounds speak of.
@pytest.mark.parametrize(
    ("name", "ratio"), [("HopSkipJump linf", 1.3), ("HopSkipJump l2", 1.2), ("HopSkipJump l1", 1.8), ("boundary", 1.3)]
)
@pytest.mark.parametrize("shape", [(1, 7, 7), (3, 4, 4)])
def test_the_boundary_of_a_linear_model_is_found(name, ratio, shape):
    classifier, batch, w, gaps = linear(shape, count=8)
    norm = ATTACKS[name][0]
    images, gone, oracle = closest(name, classifier, batch, 1500)
    nearest = gaps.double() / dual_norm(w, norm)
    assert bool((gone >= nearest * (1 - 1e-5)).all()) and float((gone / nearest).max()) < ratio
    assert (oracle.forward == 1500).all() and oracle.backward.sum() == 0
    assert bool((classifier.logits(images).argmax(dim=1) != batch.labels).all())
    assert float(images.min()) >= 0 and float(images.max()) <= 1


@pytest.mark.parametrize("name", ATTACKS)
def test_an_example_is_attacked_alone_as_in_company(name):
    classifier, batch, w, gaps = linear((2, 5, 5), count=10)
    until = 1.5 * float(gaps.median()) / dual_norm(w, ATTACKS[name][0])
    whole, gone, oracle = closest(name, classifier, batch, 700, until=until)
    assert oracle.forward.min() < oracle.forward.max() <= 700 and bool((gone > 0).all())
    order = torch.tensor([7, 3, 9, 0])
    alone = Oracle(OnlyLabels(classifier), 10)
    part = ATTACKS[name][1](alone, batch.take(order), queries=700, seed=0, purpose="p", until=until)
    assert torch.equal(part, whole[order])
    np.testing.assert_array_equal(alone.forward[order.numpy()], oracle.forward[order.numpy()])


@pytest.mark.parametrize("name", ATTACKS)
def test_outcomes_at_the_edges_are_defined(name):
    constant, batch, _, _ = linear(scale=0.0)
    labels = constant.logits(batch.images).argmax(dim=1)
    images, gone, oracle = closest(name, constant, batch_of(batch.images, labels), 200)
    assert torch.equal(images, batch.images) and float(gone.max()) == 0 and oracle.forward.max() <= 48
    for queries in (0, 1, 2, 5, 17, 63):
        classifier, batch, _, _ = linear()
        _, _, oracle = closest(name, classifier, batch, queries)
        assert oracle.forward.max() <= queries
    for shape in ((1, 1, 1), (3, 1, 1), (1, 2, 3)):
        classifier, batch, _, _ = linear(shape)
        images, _, oracle = closest(name, classifier, batch, 200)
        assert bool(images.isfinite().all()) and oracle.forward.max() <= 200
    # An image that is misclassified already ends next to itself.
    classifier, batch, _, _ = linear()
    _, gone, _ = closest(name, classifier, batch_of(batch.images, 1 - batch.labels), 300)
    assert float(gone.max()) < 0.1


@pytest.mark.parametrize("name", ATTACKS)
def test_unanswered_points_count_as_right_answers(name):
    class Fragile(torch.nn.Module):
        def forward(self, x):
            z = torch.stack([x[:, 0, 0, 0], 1 - x[:, 0, 0, 0]], dim=1)
            return torch.where((x[:, 0, 1, 1] > 0.7)[:, None], torch.nan, z)

    batch = batch_of(torch.full((3, 1, 4, 4), 0.6), torch.zeros(3, dtype=torch.long))
    images, gone, oracle = closest(name, wrap(Fragile(), image_shape=(1, 4, 4), device="cpu"), batch, 300)
    assert oracle.unanswered.all() and bool((images[:, 0, 1, 1] <= 0.7).all()) and float(gone.min()) > 0.09


def test_the_ball_decides_what_counts():
    images, points = torch.full((3, 1, 2, 2), 0.5), torch.full((3, 1, 2, 2), 0.5)
    points[0] += 0.1
    points[1, 0, 0, 0] = 0.9
    for text, expected in (("linf:0.1001", [True, False, True]), ("l2:0.3", [True, False, True]), ("l1:0.4", [False, False, True])):
        kept = inside(batch_of(images, torch.zeros(3, dtype=torch.long)), points, Threat.parse(text))
        assert [bool(torch.equal(a, b)) for a, b in zip(kept, points, strict=True)] == expected or text == "l1:0.4"
        assert bool((distance(kept, images, Threat.parse(text).norm) <= Threat.parse(text).epsilon).all())


@pytest.mark.parametrize("text", ["linf:1", "l2:1", "l1:1"])
def test_a_stage_proposes_what_lies_in_the_ball_or_nothing(text):
    classifier, batch, w, gaps = linear((1, 5, 5))
    threat = Threat.parse(text)
    threat = threat.at(1.2 * float(gaps.median()) / dual_norm(w, threat.norm))
    searches = [Search(attack="HopSkipJump", steps=500)] + [Search(attack="boundary attack", steps=500)] * (threat.norm is Norm.L2)
    for stage in stages(searches, 0, 2):
        oracle = Oracle(OnlyLabels(classifier), len(batch))
        proposals = stage.propose(oracle, batch, threat)
        gone, verified = distance(proposals, batch.images, threat.norm), verify(oracle, batch, proposals, threat)
        assert bool((gone <= threat.epsilon).all()) and not verified.outside.any()
        np.testing.assert_array_equal(verified.broken, gone > 0)
        assert 2 < verified.broken.sum() <= int((gaps / dual_norm(w, threat.norm) <= threat.epsilon).sum()) < len(batch)
        # What is inside the ball is not asked about any more.
        assert oracle.forward[verified.broken].min() < 400 and (oracle.forward[~verified.broken] == 501).all()


@pytest.mark.parametrize("norm", Norm)
def test_halfway_to_the_image_is_half_the_distance(norm):
    source = torch.Generator().manual_seed(0)
    images, points = torch.rand(5, 1, 4, 4, generator=source), torch.rand(5, 1, 4, 4, generator=source)
    share = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0], dtype=torch.float64)
    gone = distance(toward(images, points, share, norm), images, norm)
    np.testing.assert_allclose(gone, share * distance(points, images, norm), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", [Norm.LINF, Norm.L2])
def test_hop_skip_jump_beside_foolbox_at_equal_queries(norm):
    digits, network = trained_digits.digits(), trained_digits.digits_cnn()
    asked = [0]

    class Counted(torch.nn.Module):
        def forward(self, x):
            asked[0] += len(x)
            return network(x)

    with torch.no_grad():
        right = (network(torch.from_numpy(digits.images)).argmax(dim=1).numpy() == digits.labels).nonzero()[0][:8]
    batch = batch_of(torch.from_numpy(digits.images[right]), torch.from_numpy(digits.labels[right]))
    theirs = foolbox.PyTorchModel(Counted().eval(), bounds=(0, 1), device="cpu")
    torch.manual_seed(0)
    attack = foolbox.attacks.HopSkipJumpAttack(steps=4, constraint=norm.value)
    # One by one: in a batch its examples wait for each other.
    found = torch.cat(
        [
            attack(theirs, image[None], label[None], epsilons=None)[1]
            for image, label in zip(batch.images, batch.labels, strict=True)
        ]
    )
    peer = distance(found, batch.images, norm)
    _, ours, _ = closest(f"HopSkipJump {norm.value}", wrap(network, image_shape=(1, 8, 8), device="cpu"), batch, asked[0] // 8)
    assert float(ours.median()) <= 1.1 * float(peer.median()) and float(ours.min()) > 0
