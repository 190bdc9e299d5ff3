"""Distances beside foolbox on a trained network, at no fewer passes for foolbox: at most 1.03 times its median."""

import foolbox
import numpy as np
import pytest
import torch
import trained_digits
from minimum_norm import ATTACKS

from audit.attacks.minimal import minimal
from audit.attacks.run import Batch, Oracle
from audit.models.torch_module import wrap
from audit.vocabulary import Norm

PEERS = {
    ("deepfool", Norm.LINF): (foolbox.attacks.LinfDeepFoolAttack, {"steps": 50}),
    ("deepfool", Norm.L2): (foolbox.attacks.L2DeepFoolAttack, {"steps": 50}),
    ("ddn", Norm.L2): (foolbox.attacks.DDNAttack, {"steps": 100}),
    ("cw", Norm.L2): (foolbox.attacks.L2CarliniWagnerAttack, {"binary_search_steps": 6, "steps": 100}),
    ("fmn", Norm.LINF): (foolbox.attacks.LInfFMNAttack, {"steps": 100}),
    ("fmn", Norm.L2): (foolbox.attacks.L2FMNAttack, {"steps": 100}),
    ("fmn", Norm.L1): (foolbox.attacks.L1FMNAttack, {"steps": 100}),
}


@pytest.fixture(scope="module")
def subject():
    network = trained_digits.digits_cnn()
    classifier = wrap(network, image_shape=(1, 8, 8), device="cpu")
    batch = Batch.of(trained_digits.digits(), classifier.device).take(torch.arange(60))
    return classifier, batch, classifier.logits(batch.images), foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")


@pytest.mark.parametrize(("name", "norm"), PEERS)
def test_median_distance_beside_foolbox(subject, name, norm):
    classifier, batch, logits, model = subject
    attack, budget = PEERS[name, norm]
    torch.manual_seed(0)
    _, images, success = attack(**budget)(model, batch.images, batch.labels, epsilons=None)
    change = (images.double() - batch.images.double()).flatten(1)
    length = {Norm.LINF: change.abs().amax(dim=1), Norm.L2: change.norm(dim=1), Norm.L1: change.abs().sum(dim=1)}[norm]
    theirs = torch.where(success, length, torch.inf).numpy()
    ours = minimal(Oracle(classifier, len(batch)), batch, logits, ATTACKS[name], norm)
    assert ours.found.all() and np.median(ours.distance) <= 1.03 * np.median(theirs)
