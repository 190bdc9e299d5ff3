"""The order of targets against every class attacked to its optimum, and how the cascade uses and pays for it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import trained_digits
from linear_optima import batch_of, dual, linear

from audit.attacks.cascade import worst_case
from audit.attacks.run import MOST_CLASSES_AT_ONCE, Batch, Oracle
from audit.attacks.stages import Stage, stages
from audit.attacks.targets import ORDERS, box_order, candidates, logit_order
from audit.collect.costs import passes
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey
from audit.models.torch_module import wrap
from audit.profiles import Search
from audit.settings import Settings
from audit.vocabulary import Norm, Threat

SMALL = {Norm.LINF: "linf:0.03", Norm.L2: "l2:0.2", Norm.L1: "l1:0.3"}


@pytest.mark.parametrize("norm", Norm)
@pytest.mark.parametrize("classes", [2, 3, 10, 30])
def test_box_order_is_by_the_margin_left_at_the_optimum(norm, classes):
    classifier, batch, w = linear(classes, count=40)
    threat = Threat.parse(SMALL[norm])
    clean = classifier.logits(batch.images)
    oracle = Oracle(classifier, 40)
    order = box_order(oracle, batch, clean, threat)
    assert order.shape == (40, candidates(classes)) and bool((order != batch.labels[:, None]).all())
    slopes = w[order] - w[batch.labels][:, None]
    reach = threat.epsilon * dual(slopes.flatten(0, 1), norm).view_as(order)
    left = clean.gather(1, batch.labels[:, None]) - clean.gather(1, order) - reach
    assert bool((left.diff(dim=1) >= -1e-4).all())
    everything = classes <= MOST_CLASSES_AT_ONCE
    assert (oracle.forward == (1 if everything else 10)).all() and (oracle.backward == (classes if everything else 10)).all()
    if everything:
        assert all(sorted([*row, label]) == list(range(classes)) for row, label in zip(order.tolist(), batch.labels, strict=True))


def test_the_box_is_what_the_pixel_range_leaves():
    """Class 2 is nearer by logit and by gradient, but its pixels are bright already: only class 1 can gain."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    with torch.no_grad():
        network[1].weight.copy_(torch.tensor([[0.0, 0, 0, 0], [8, 8, 0, 0], [0, 0, 8, 8]]))
        network[1].bias.copy_(torch.tensor([0.0, -9, -16.5]))
    classifier = wrap(network, image_shape=(1, 2, 2), device="cpu")
    batch = batch_of(torch.tensor([0.5, 0.5, 1.0, 1.0]).view(1, 1, 2, 2), torch.zeros(1, dtype=torch.long))
    logits = classifier.logits(batch.images)
    assert logits.tolist() == [[0.0, -1.0, -0.5]]
    for text in ("linf:0.1", "l2:0.2", "l1:0.2"):
        oracle, threat = Oracle(classifier, 1), Threat.parse(text)
        assert box_order(oracle, batch, logits, threat).tolist() == [[1, 2]]
        assert logit_order(oracle, batch, logits, threat).tolist() == [[2, 1]]


@pytest.mark.parametrize("order", ORDERS)
def test_orders_are_rows_of_their_own(order):
    classifier = wrap(trained_digits.digits_cnn(), image_shape=(1, 8, 8), device="cpu")
    batch = Batch.of(trained_digits.digits(), classifier.device).take(torch.arange(70))
    logits = classifier.logits(batch.images)
    for text in ("linf:0.1", "l2:0.5", "l1:3"):
        threat = Threat.parse(text)
        together = ORDERS[order](Oracle(classifier, 70), batch, logits, threat)
        index = torch.tensor([69, 3, 33])
        assert torch.equal(ORDERS[order](Oracle(classifier, 70), batch.take(index), logits[index], threat), together[index])


def test_the_cascade_aims_at_the_kth_class():
    classifier = wrap(trained_digits.digits_cnn(), image_shape=(1, 8, 8), device="cpu")
    digits, threat = trained_digits.digits(), Threat.parse("linf:0.01")
    chunk = Chunk(positions=digits.positions[:40], ids=digits.ids[:40], labels=digits.labels[:40], images=digits.images[:40])
    clean = classifier.logits(torch.from_numpy(chunk.images))
    seen = []

    def watch(oracle, batch, threat):
        seen.append((batch.rows.copy(), batch.targets.clone()))
        return batch.images

    arm = tuple(Stage(name=f"{order} {k}", propose=watch, target=k, order=order) for k in (2, 0, 1) for order in ORDERS)
    evidence = worst_case(classifier, chunk, clean.double().numpy(), threat, arm, shown=0)
    batch = Batch.of(chunk, classifier.device)
    expected = {name: order(Oracle(classifier, 40), batch, clean, threat) for name, order in ORDERS.items()}
    for stage, (rows, targets) in zip(arm, seen, strict=True):
        wanted = batch.labels if stage.target == 0 else expected[stage.order][:, stage.target - 1]
        assert torch.equal(targets, wanted[torch.from_numpy(rows)])
    # One Jacobian for all stages: 1 forward and 10 backward passes; every stage is verified once.
    survivors = evidence.robust
    assert (evidence.backward_passes[survivors] == 10).all() and (evidence.forward_passes[survivors] == 1 + len(arm)).all()


def test_costs_are_what_a_survivor_of_everything_spends():
    for classes in (2, 3, 10, 30):
        classifier, batch, _ = linear(classes)
        chunk = Chunk(
            positions=np.arange(20), ids=np.arange(20).astype(str), labels=batch.labels.numpy(), images=batch.images.numpy()
        )
        clean = classifier.logits(batch.images).double().numpy()
        arm = (
            Search(attack="FGSM"),
            Search(attack="APGD", loss="margin", steps=5, start="uniform"),
            Search(attack="APGD", loss="margin_targeted", steps=6, start="dct3", target=2),
            Search(attack="APGD", loss="dlr_targeted", steps=4, start="blocks", target=1),
            Search(attack="FAB", steps=3, target=1, order="logits"),
        )
        settings = Settings.of("quick")
        settings = replace(settings, profile=replace(settings.profile, linf=arm, l2=(), l1=()))
        threat = Threat.parse("linf:0.00001")
        evidence = worst_case(classifier, chunk, clean, threat, stages(arm, 0, classes), shown=0)
        forward, backward = passes(EvidenceKey(kind=Evidence.WORST_CASE_WHITE_BOX, threat=threat), settings, {}, classes, 36)
        assert evidence.robust.all()
        # The single gradient of FGSM is not asked again at its end.
        assert (evidence.forward_passes == forward - 1).all() and (evidence.backward_passes == backward).all()
