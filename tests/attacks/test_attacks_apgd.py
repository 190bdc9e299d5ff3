"""APGD, MI-FGSM and the search from outside on models whose best attack is known, and beside foolbox."""

import foolbox
import numpy as np
import pytest
import torch
import trained_digits
from linear_optima import SHAPE, batch_of, dual, linear

from audit.attacks.apgd import apgd, checkpoints
from audit.attacks.losses import LOSSES, margin
from audit.attacks.mi_fgsm import mi_fgsm
from audit.attacks.outside import outside
from audit.attacks.run import Batch, Oracle, verify
from audit.errors import InputError
from audit.models.torch_module import wrap
from audit.vocabulary import Norm, Threat

FULL = {"seed": 0, "purpose": "t"}
SMALL = {Norm.LINF: "linf:0.03", Norm.L2: "l2:0.2", Norm.L1: "l1:0.3"}


def climb(oracle, batch, threat, *, loss="margin", steps=40, start="uniform", stop=False, radius=0.0):
    return apgd(oracle, batch, threat, loss=loss, steps=steps, start=start, stop_early=stop, radius=radius, **FULL)


def come_in(oracle, batch, threat, *, loss="margin", steps=40, start="uniform", radius=4.0):
    return outside(oracle, batch, threat, loss=loss, steps=steps, start=start, radius=radius, **FULL)


def momentum(oracle, batch, threat, *, loss="margin", steps=40, stop=False):
    return mi_fgsm(oracle, batch, threat, loss=loss, steps=steps, stop_early=stop)


def gains(classifier, batch, proposals, threat):
    """What z_t - z_y gained, and whether everything stayed inside."""
    verified = verify(Oracle(classifier, len(batch)), batch, proposals, threat)
    assert not verified.outside.any() and verified.answered.all()
    z, clean = torch.from_numpy(verified.logits), classifier.logits(batch.images).double()
    other = batch.targets[:, None]
    after, before = (v.gather(1, other) - v.gather(1, batch.labels[:, None]) for v in (z, clean))
    return (after - before)[:, 0].numpy()


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("log_probabilities", [False, True])
def test_the_gain_on_one_class_is_the_dual_norm(norm, classes, log_probabilities):
    classifier, batch, w = linear(classes, log_probabilities=log_probabilities)
    threat = Threat.parse(SMALL[norm])
    aimed = batch.aimed((batch.labels + 1) % classes)
    optimum = threat.epsilon * dual(w[aimed.targets] - w[aimed.labels], norm).numpy()
    for start in ("uniform", "blocks", "stripes", "dct3", "clean"):
        proposals = climb(Oracle(classifier, 20), aimed, threat, loss="margin_targeted", start=start)
        reached = gains(classifier, aimed, proposals, threat)
        # What is returned is the strongest by margin: with more than two classes another class may have been nearer.
        if classes == 2:
            np.testing.assert_allclose(reached, optimum, rtol=1e-2)
        assert (reached <= optimum * (1 + 1e-4)).all()


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes", [2, 3])
def test_every_loss_reaches_the_margin_that_the_best_class_allows(norm, loss, classes):
    classifier, batch, w = linear(classes)
    threat = Threat.parse(SMALL[norm])
    clean = classifier.logits(batch.images)
    best = torch.full((20,), -torch.inf)
    for k in range(classes):
        gap = clean[:, k] - clean.gather(1, batch.labels[:, None])[:, 0]
        reach = gap + threat.epsilon * dual(w[k] - w[batch.labels], norm)
        best = torch.where(batch.labels == k, best, torch.maximum(best, reach))
    reached = torch.full((20,), -torch.inf)
    for k in range(1, classes):
        aimed = batch.aimed((batch.labels + k) % classes)
        verified = verify(oracle := Oracle(classifier, 20), aimed, climb(oracle, aimed, threat, loss=loss), threat)
        reached = torch.maximum(reached, margin(torch.from_numpy(verified.logits).float(), batch.labels))
    slack = 0.02 * threat.epsilon * dual(w[1:] - w[:1], norm).max()
    assert bool((reached <= best + 1e-4).all())
    if classes == 2 or loss == "margin_targeted":
        assert bool((reached >= best - slack).all())


@pytest.mark.parametrize("norm", Norm)
def test_success_exactly_where_the_boundary_is_inside(norm):
    classifier, batch, w = linear(2)
    gaps = (classifier.logits(batch.images)[:, 0] - classifier.logits(batch.images)[:, 1]).abs()
    nearest = (gaps / dual(w[:1] - w[1:], norm)).numpy()
    threat = Threat.parse(SMALL[norm]).at(float(np.median(nearest)))
    within = nearest < threat.epsilon
    attacks = [climb, lambda *a: climb(*a, stop=True), momentum]
    attacks += [] if norm is Norm.LINF else [come_in, lambda *a: come_in(*a, loss="cross_entropy", start="dct3", radius=8)]
    for attack in attacks:
        oracle = Oracle(classifier, 20)
        broken = verify(oracle, batch, attack(oracle, batch, threat), threat).broken
        wrong = np.flatnonzero(broken != within)
        # Within one percent of the boundary either answer is right.
        assert (np.abs(nearest[wrong] / threat.epsilon - 1) < 0.02).all(), (attack, nearest[wrong] / threat.epsilon)
        assert not (broken & ~within).any()


@pytest.mark.parametrize("norm", Norm)
def test_a_row_does_not_depend_on_its_neighbours(norm):
    classifier = wrap(trained_digits.digits_cnn(), image_shape=(1, 8, 8), device="cpu")
    whole = Batch.of(trained_digits.digits(), classifier.device)
    whole = whole.take(torch.arange(70)).aimed((whole.labels[:70] + 1) % 10)
    threat = Threat.parse({Norm.LINF: "linf:0.1", Norm.L2: "l2:0.5", Norm.L1: "l1:3"}[norm])
    runs = [
        lambda b: climb(Oracle(classifier, 70), b, threat, loss="scaled_probability_margin", steps=12, start="blocks", stop=True),
        lambda b: climb(Oracle(classifier, 70), b, threat, loss="dlr_targeted", steps=12, start="dct3"),
        lambda b: momentum(Oracle(classifier, 70), b, threat, steps=6, stop=True),
    ]
    if norm is Norm.L1:
        runs.append(lambda b: climb(Oracle(classifier, 70), b, threat, loss="cross_entropy", steps=12, radius=3, stop=True))
    if norm is not Norm.LINF:
        runs.append(lambda b: come_in(Oracle(classifier, 70), b, threat, steps=12))
    for run in runs:
        together = run(whole)
        for index in (torch.arange(5), torch.randperm(70, generator=torch.Generator().manual_seed(0)), torch.tensor([41])):
            assert torch.equal(run(whole.take(index)), together[index])


@pytest.mark.parametrize("norm", Norm)
def test_early_stop_breaks_the_same_examples_for_less(norm):
    classifier = wrap(trained_digits.digits_cnn(), image_shape=(1, 8, 8), device="cpu")
    batch = Batch.of(trained_digits.digits(), classifier.device).take(torch.arange(100))
    threat = Threat.parse({Norm.LINF: "linf:0.08", Norm.L2: "l2:0.5", Norm.L1: "l1:2"}[norm])
    found = {}
    for stop in (False, True):
        oracle = Oracle(classifier, 100)
        found[stop] = (verify(oracle, batch, climb(oracle, batch, threat, steps=20, stop=stop), threat).broken, oracle)
    assert (found[True][0] == found[False][0]).all() and 5 < found[True][0].sum() < 95
    assert (found[False][1].backward == 20).all() and (found[False][1].forward == 22).all()
    assert found[True][1].backward.sum() < found[False][1].backward.sum()


class Kinked(torch.nn.Module):
    """The square root has an infinite gradient at 0."""

    def forward(self, x):
        value = x.flatten(1).sqrt().mean(dim=1)
        return torch.stack([value, 1 - value], dim=1)


class Constant(torch.nn.Module):
    def forward(self, x):
        return torch.tensor([[2.0, 1.0, 0.0]]) + 0 * x.flatten(1).sum(dim=1, keepdim=True)


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("module", [Kinked(), Constant()])
def test_gradients_without_use_end_quietly(norm, epsilon, module):
    classifier = wrap(module, image_shape=(1, 4, 4), device="cpu")
    images = torch.full((3, 1, 4, 4), 0.25)
    images[1] = 0
    batch = batch_of(images, classifier.logits(images).argmax(dim=1))
    threat = Threat.parse(f"{norm}:{epsilon}")
    for attack in [climb, momentum] + [come_in] * (norm is not Norm.LINF):
        proposals = attack(Oracle(classifier, 3), batch, threat)
        assert bool(proposals.isfinite().all())
        if epsilon == 0:
            assert torch.equal(proposals, images)
        assert not verify(Oracle(classifier, 3), batch, proposals, threat).outside.any()


@pytest.mark.parametrize("norm", Norm)
def test_a_single_pixel(norm):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(1, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        network[1].bias.copy_(torch.tensor([1.0, 0.0]))
    classifier = wrap(network, image_shape=(1, 1, 1), device="cpu")
    images = torch.tensor([0.2, 0.44, 0.56]).view(3, 1, 1, 1)
    batch = batch_of(images, torch.tensor([0, 0, 1]))
    threat = Threat.parse(f"{norm}:0.1")
    for start in ("uniform", "blocks", "stripes", "dct3", "clean"):
        for attack in [climb] + [come_in] * (norm is not Norm.LINF):
            proposals = attack(Oracle(classifier, 3), batch, threat, start=start, steps=20)
            assert verify(Oracle(classifier, 3), batch, proposals, threat).broken.tolist() == [False, True, True]


def test_nothing_to_attack_and_no_steps():
    classifier, batch, _ = linear(3)
    none = batch.take(torch.arange(0))
    for norm in Norm:
        threat = Threat.parse(SMALL[norm])
        assert climb(Oracle(classifier, 20), none, threat).shape == (0, *SHAPE)
        assert torch.equal(climb(Oracle(classifier, 20), batch, threat, steps=0), batch.images)
    with pytest.raises(InputError, match="from outside"):
        come_in(Oracle(classifier, 20), batch, Threat.parse("linf:0.1"))


@pytest.mark.parametrize("steps", [1, 2, 5, 20, 50, 100])
def test_checkpoints_follow_the_published_windows(steps):
    """p_0 = 0, p_1 = 0.22, p_(j+1) = p_j + max(p_j - p_(j-1) - 0.03, 0.06), in whole steps rounded up."""
    p = [0.0, 0.22]
    while p[-1] < 1:
        p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
    assert checkpoints(steps) == {int(np.ceil(round(steps * share, 6))) for share in p[1:-1]}


@pytest.fixture(scope="module")
def digits():
    network = trained_digits.digits_cnn()
    classifier = wrap(network, image_shape=(1, 8, 8), device="cpu")
    return classifier, Batch.of(trained_digits.digits(), classifier.device), foolbox.PyTorchModel(network, (0, 1), device="cpu")


@pytest.mark.parametrize(
    ("text", "attack", "peer"),
    [
        ("linf:0.08", climb, foolbox.attacks.LinfPGD(rel_stepsize=2.5 / 40, steps=40)),
        ("l2:0.4", climb, foolbox.attacks.L2PGD(rel_stepsize=2.5 / 40, steps=40)),
        ("l1:1.5", climb, foolbox.attacks.SparseL1DescentAttack(steps=40)),
        ("linf:0.08", momentum, foolbox.attacks.LinfMomentumIterativeFastGradientMethod(steps=40, rel_stepsize=1 / 40)),
        ("l2:0.4", momentum, foolbox.attacks.L2MomentumIterativeFastGradientMethod(steps=40, rel_stepsize=1 / 40)),
        ("l2:0.4", lambda *a, **k: come_in(*a, radius=1, **k), foolbox.attacks.DDNAttack(steps=40)),
    ],
)
def test_beside_foolbox(digits, text, attack, peer):
    classifier, batch, model = digits
    threat = Threat.parse(text)
    torch.manual_seed(0)
    _, _, theirs = peer(model, batch.images, batch.labels, epsilons=threat.epsilon)
    oracle = Oracle(classifier, len(batch))
    ours = verify(oracle, batch, attack(oracle, batch, threat, loss="cross_entropy"), threat).broken.mean()
    assert ours >= float(theirs.float().mean()) - 0.005 and 0.1 < ours < 0.98
