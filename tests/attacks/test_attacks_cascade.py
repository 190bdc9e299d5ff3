import numpy as np
import pytest
import small_arms
import torch
import trained_digits

from audit.attacks.cascade import worst_case
from audit.attacks.epsilon_curve import accuracy_epsilon
from audit.attacks.stages import stages
from audit.data import Chunk
from audit.evidence import BROKEN, NATURAL_ERROR, NOT_BROKEN, SURVIVED, UNKNOWN
from audit.models.torch_module import wrap
from audit.profiles import PROFILES, Search
from audit.settings import Settings
from audit.vocabulary import Threat

TWICE = Search(attack="PGD", loss="margin", steps=5)
WHITE = stages((*small_arms.pgd(cross_entropy=5, margin=5), TWICE), 0, 10)
FAST = stages((Search(attack="FGSM"),), 0, 10)
BLACK = stages(small_arms.queries(4, 30), 0, 10)


@pytest.fixture(scope="module")
def subject():
    digits, digits_cnn = trained_digits.digits(), trained_digits.digits_cnn()
    classifier = wrap(digits_cnn, image_shape=(1, 8, 8), device="cpu")
    chunk = Chunk(positions=digits.positions[:90], ids=digits.ids[:90], labels=digits.labels[:90].copy(), images=digits.images[:90])
    chunk.labels[[4, 7]] = (chunk.labels[[4, 7]] + 1) % 10  # two natural errors for certain
    return classifier, chunk, classifier.logits(torch.from_numpy(chunk.images)).double().numpy()


def test_columns_agree_with_each_other_and_with_the_model(subject):
    classifier, chunk, clean = subject
    threat = Threat.parse("linf:0.06")
    evidence = worst_case(classifier, chunk, clean, threat, WHITE, shown=24)
    assert evidence.attacks == ("FGSM", "PGD-5 cross-entropy", "PGD-5 margin", "PGD-5 margin, run 2")
    natural = clean.argmax(axis=1) != chunk.labels
    assert natural[[4, 7]].all() and (evidence.state[natural] == BROKEN).all()
    assert (evidence.broken_by[natural] == NATURAL_ERROR).all() and (evidence.forward_passes[natural] == 0).all()
    attacked = evidence.broken_by >= 0
    assert (evidence.broken_by[evidence.state == SURVIVED] == NOT_BROKEN).all() and 5 < attacked.sum() < 85
    assert (evidence.adversarial_class[attacked] != chunk.labels[attacked]).all()
    assert (evidence.distance[attacked] <= threat.epsilon).all() and (evidence.distance[attacked] > 0).all()
    assert evidence.robust.sum() + attacked.sum() + natural.sum() == 90
    assert [failure.position for failure in evidence.shown] == chunk.positions[attacked][:24].tolist()
    for failure in evidence.shown:
        row = failure.position
        logits = classifier.logits(torch.from_numpy(failure.adversarial)[None])[0].double()
        assert int(logits.argmax()) == evidence.adversarial_class[row]
        assert float(logits.softmax(0).max()) == pytest.approx(evidence.adversarial_confidence[row], abs=1e-6)
        assert np.abs(failure.adversarial.astype(float) - chunk.images[row]).max() == pytest.approx(
            evidence.distance[row], abs=1e-9
        )


def test_a_survivor_of_every_stage_saw_every_stage(subject):
    classifier, chunk, clean = subject
    evidence = worst_case(classifier, chunk, clean, Threat.parse("linf:0.02"), WHITE, shown=0)
    survivors = evidence.robust
    # FGSM 1 + 1, three times PGD 6 + 1; gradients 1 + 15.
    assert (evidence.forward_passes[survivors] == 2 + 3 * 7).all() and (evidence.backward_passes[survivors] == 16).all()
    assert evidence.shown == ()


def test_black_box_arm_uses_no_gradient_and_is_weaker(subject):
    classifier, chunk, clean = subject
    threat = Threat.parse("linf:0.1")
    white = worst_case(classifier, chunk, clean, threat, WHITE, shown=0)
    black = worst_case(classifier, chunk, clean, threat, BLACK, shown=0)
    assert black.attacks == ("random noise, 4 draws", "Square-30") and black.backward_passes.sum() == 0
    assert white.robust.sum() <= black.robust.sum() < black.clean_correct.sum()


@pytest.mark.parametrize("arm", [WHITE, BLACK])
def test_epsilon_zero_is_clean_accuracy(subject, arm):
    classifier, chunk, clean = subject
    evidence = worst_case(classifier, chunk, clean, Threat.parse("linf:0"), arm, shown=24)
    assert (evidence.robust == evidence.clean_correct).all() and evidence.forward_passes.sum() == 0


def test_an_example_the_model_cannot_answer_is_unknown_unless_broken():
    class Fragile(torch.nn.Module):
        def forward(self, x):
            z = torch.stack([x[:, 0, 0, 0], 1 - x[:, 0, 0, 0]], dim=1)
            return torch.where((x[:, 0, 1, 1] > 0.905)[:, None], torch.nan, z)

    images = np.full((4, 1, 3, 3), 0.5, dtype=np.float32)
    images[:, 0, 0, 0] = [0.9, 0.9, 0.52, 0.9]
    images[:, 0, 1, 1] = [0.5, 0.9, 0.5, 0.5]
    chunk = Chunk(positions=np.arange(4), ids=np.array(list("abcd")), labels=np.zeros(4, dtype=np.int64), images=images)
    classifier = wrap(Fragile(), image_shape=(1, 3, 3), device="cpu")
    clean = classifier.logits(torch.from_numpy(images)).double().numpy()
    for arm in (WHITE, BLACK):
        evidence = worst_case(classifier, chunk, clean, Threat.parse("linf:0.05"), arm, shown=0)
        assert evidence.state.tolist() == [SURVIVED, UNKNOWN, BROKEN, SURVIVED]
        assert evidence.robust.tolist() == [True, False, False, True]
    curve = accuracy_epsilon(classifier, chunk, evidence, clean, (0.5, 1.0, 2.0), "white-box", FAST)
    assert (np.diff(curve.robust.astype(int), axis=1) <= 0).all()


def test_stage_names_are_unique_in_every_profile():
    for row in PROFILES:
        for arm in (row.linf, row.l2, row.l1, row.score_based, row.label_only):
            for classes in (2, 10):
                found = stages(arm, 0, classes)
                assert found and len({stage.name for stage in found}) == len(found)


def test_curve_epsilons():
    settings = Settings.of("quick")
    assert settings.curve_epsilons(Threat.parse("l2:0.5")) == (0.0, 0.125, 0.25, 0.5, 1.0)
    assert settings.curve_epsilons(Threat.parse("linf:0.7")) == (0.0, 0.175, 0.35, 0.7, 1.0)
    assert settings.curve_epsilons(Threat.parse("linf:0")) == (0.0,)


def test_curve_on_a_linear_model_is_its_distance_distribution():
    source = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    w = torch.randn(16, generator=source)
    images = 0.35 + 0.3 * torch.rand(60, 1, 4, 4, generator=source)
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([w, torch.zeros(16)]))
        network[1].bias.copy_(torch.tensor([-float((images.flatten(1) @ w).mean()), 0.0]))
    classifier = wrap(network, image_shape=(1, 4, 4), device="cpu")
    clean = classifier.logits(images).double().numpy()
    labels = clean.argmax(axis=1)
    labels[:5] = 1 - labels[:5]
    chunk = Chunk(positions=np.arange(60), ids=np.arange(60).astype(str), labels=labels, images=images.numpy())
    threat = Threat.parse("linf:0.02")
    budgets = (0.0, 0.005, 0.01, 0.02, 0.04)
    evidence = worst_case(classifier, chunk, clean, threat, WHITE, shown=0)
    curve = accuracy_epsilon(classifier, chunk, evidence, clean, budgets, "white-box", FAST)
    distance = np.abs(clean[:, 0] - clean[:, 1]) / float(w.abs().sum())
    expected = (distance[:, None] > np.array(curve.epsilons)) & (clean.argmax(axis=1) == labels)[:, None]
    assert (curve.robust == expected).all() and (curve.robust[:, curve.epsilons.index(0.02)] == evidence.robust).all()
    assert len(set(expected.sum(axis=0))) == 5
    # Going down, an example is attacked only while a larger budget breaks it.
    assert curve.forward_passes.sum() < 60 * 3 * 2


@pytest.mark.parametrize("text", ["linf:0.08", "l2:0.5", "l1:2"])
def test_nine_points_cost_at_most_four_times_one_epsilon(subject, text):
    classifier, chunk, clean = subject
    settings, threat = Settings.of("standard"), Threat.parse(text)
    arm = stages(settings.profile.white_box(threat.norm), 0, 10)
    own = worst_case(classifier, chunk, clean, threat, arm, shown=0)
    budgets = settings.curve_epsilons(threat)
    curve = accuracy_epsilon(classifier, chunk, own, clean, budgets, "white-box", arm)
    alone = [worst_case(classifier, chunk, clean, threat.at(epsilon), arm, shown=0) for epsilon in budgets]
    cost = [(each.forward_passes + each.backward_passes).sum() for each in (own, curve, *alone)]
    assert len(budgets) == 9 and cost[0] + cost[1] <= 4 * max(cost[2:]) and cost[0] + cost[1] < 0.6 * sum(cost[2:])
    # Each point as an attack of its own finds it, up to the one or two examples that a seed decides.
    independent = np.array([each.robust.sum() for each in alone])
    assert np.abs(curve.robust.sum(axis=0) - independent).max() <= 2
    assert (curve.robust[:, budgets.index(threat.epsilon)] == own.robust).all()


def test_classes_are_ordered_once_on_the_way_down(subject):
    classifier, chunk, clean = subject
    arm = stages((Search(attack="APGD", loss="margin_targeted", steps=2, start="clean", target=1),), 0, 10)
    threat = Threat.parse("linf:0.3")
    own = worst_case(classifier, chunk, clean, threat, arm, shown=0)
    curve = accuracy_epsilon(classifier, chunk, own, clean, (0.0, 0.1, 0.2, 0.3), "white-box", arm)
    attacked = curve.backward_passes > 0
    assert attacked.any() and (curve.backward_passes[attacked] <= 10 + 2 * 2).all()
