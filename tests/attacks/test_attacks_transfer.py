"""Transfer: the audited model is asked once an image, and the images come from the surrogate."""

import numpy as np
import pytest
import torch
from two_class_linear import batch_of, dual_norm, linear

from audit.attacks.cascade import worst_case
from audit.attacks.pgd import pgd
from audit.attacks.run import Oracle
from audit.attacks.stages import stages
from audit.attacks.transfer import transfer
from audit.collect.costs import passes
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey
from audit.profiles import Search
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

ARM = (Search(attack="random noise", steps=2), Search(attack="transfer", steps=10, loss="margin"))


@pytest.mark.parametrize("text", ["linf:0.03", "l2:0.2", "l1:0.5"])
def test_images_are_crafted_on_the_surrogate_alone(text):
    audited, batch, _, _ = linear()
    surrogate, _, _, _ = linear()
    threat, oracle, asked = Threat.parse(text), Oracle(audited, 12), audited.forward_passes
    found = transfer(oracle, batch, threat, surrogate=surrogate, loss="margin", steps=8, seed=0, purpose="p")
    assert audited.forward_passes == asked and oracle.forward.sum() == oracle.backward.sum() == 0
    assert surrogate.backward_passes >= 12 * 8
    own = pgd(Oracle(surrogate, 12), batch, threat, loss="margin", steps=8, seed=0, purpose="p", stop_early=False)
    assert torch.equal(found, own)
    part = transfer(
        oracle, batch.take(torch.tensor([5, 2])), threat, surrogate=surrogate, loss="margin", steps=8, seed=0, purpose="p"
    )
    assert torch.equal(part, found[[5, 2]])


def test_the_stage_is_named_after_the_surrogate_and_left_out_without_one():
    audited, batch, w, gaps = linear()
    chunk = Chunk(positions=np.arange(12), ids=np.arange(12).astype(str), labels=batch.labels.numpy(), images=batch.images.numpy())
    threat = Threat.parse("linf:1").at(float(gaps.median()) / dual_norm(w, Threat.parse("linf:1").norm))
    clean = audited.logits(batch.images).double().numpy()
    with_one = worst_case(audited, chunk, clean, threat, stages(ARM, 0, 2, audited), shown=0)
    assert with_one.attacks == ("random noise, 2 draws", f"transfer from {audited.identity.label}: PGD-10 margin")
    # The surrogate is as good as the model itself here: every image within reach is broken with one question.
    within = gaps.numpy() < threat.epsilon * dual_norm(w, threat.norm) * 0.999
    assert (with_one.broken_by[within] == 1).all() and (with_one.forward_passes == 4).all() and with_one.backward_passes.sum() == 0
    alone = worst_case(audited, chunk, clean, threat, stages(ARM, 0, 2), shown=0)
    assert alone.attacks == ("random noise, 2 draws",)
    # A surrogate of opposite opinion transfers nothing.
    assert not worst_case(audited, chunk, clean, threat, stages(ARM, 0, 2, Opposite(audited)), shown=0).broken_by.max() >= 1


class Opposite:
    """The same model with its two classes exchanged."""

    def __init__(self, inner):
        self._inner = inner
        self.identity, self.classes, self.device = inner.identity, inner.classes, inner.device

    def logits(self, images):
        return self._inner.logits(images).flip(1)

    def loss_gradient(self, images, loss):
        logits, values, gradient = self._inner.loss_gradient(images, lambda z, rows: loss(z.flip(1), rows))
        return logits.flip(1), values, gradient


def test_the_plan_counts_one_question_a_loss():
    settings = Settings.of("quick")
    lacks = {Capability.GRADIENTS: "none"}
    key = EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=Threat.parse("linf:0.1"))
    without = passes(key, settings, {**lacks, Capability.SURROGATE: "none given"}, 10, 784)
    assert passes(key, settings, lacks, 10, 784) == (without[0] + 2, 0)


def test_one_pixel_and_two_examples_are_enough():
    audited, _, _, _ = linear((1, 1, 1))
    batch = batch_of(torch.tensor([[[[0.4]]], [[[0.6]]]]), torch.tensor([0, 1]))
    found = transfer(
        Oracle(audited, 2), batch, Threat.parse("l1:0.1"), surrogate=audited, loss="cross_entropy", steps=2, seed=0, purpose="p"
    )
    assert float((found - batch.images).abs().max()) <= 0.1 + 1e-6
