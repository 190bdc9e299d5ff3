"""Success rates beside foolbox on a trained network: within half a point, or stronger."""

import foolbox
import numpy as np
import pytest
import torch
import trained_digits

from audit.attacks.fgsm import fgsm
from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle, verify
from audit.models.torch_module import wrap
from audit.vocabulary import Threat


@pytest.fixture(scope="module")
def subject():
    digits, digits_cnn = trained_digits.digits(), trained_digits.digits_cnn()
    classifier = wrap(digits_cnn, image_shape=(1, 8, 8), device="cpu")
    batch = Batch.of(digits, classifier.device)
    return classifier, batch, foolbox.PyTorchModel(digits_cnn, bounds=(0, 1), device="cpu")


def share(classifier, batch, threat, attack):
    oracle = Oracle(classifier, len(batch))
    return verify(oracle, batch, attack(oracle, batch, threat), threat).broken.mean()


@pytest.mark.parametrize(
    ("text", "peer"), [("linf:0.08", foolbox.attacks.LinfFastGradientAttack), ("l2:0.4", foolbox.attacks.L2FastGradientAttack)]
)
def test_fgsm_beside_foolbox(subject, text, peer):
    classifier, batch, model = subject
    threat = Threat.parse(text)
    _, _, theirs = peer()(model, batch.images, batch.labels, epsilons=threat.epsilon)
    ours = share(classifier, batch, threat, fgsm)
    if threat.norm == "linf":
        assert ours == pytest.approx(float(theirs.float().mean()), abs=0.005)
    else:  # ours drops the gradient that points out of the box
        assert ours >= float(theirs.float().mean()) - 0.005
    assert 0.1 < ours < 0.95


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("linf:0.08", foolbox.attacks.LinfProjectedGradientDescentAttack),
        ("l2:0.4", foolbox.attacks.L2ProjectedGradientDescentAttack),
    ],
)
@pytest.mark.parametrize("loss", ["cross_entropy", "margin"])
def test_pgd_beside_foolbox(subject, text, peer, loss):
    classifier, batch, model = subject
    threat = Threat.parse(text)
    torch.manual_seed(0)
    _, _, theirs = peer(rel_stepsize=2.5 / 40, steps=40)(model, batch.images, batch.labels, epsilons=threat.epsilon)
    for stop in (True, False):
        ours = share(
            classifier,
            batch,
            threat,
            lambda o, b, t, stop=stop: pgd(o, b, t, loss=loss, steps=40, seed=0, purpose="peer", stop_early=stop),
        )
        assert ours >= float(theirs.float().mean()) - 0.005
        if threat.norm == "linf" and loss == "cross_entropy" and not stop:
            assert ours <= float(theirs.float().mean()) + 0.02
    assert 0.1 < np.mean(ours) < 0.98
