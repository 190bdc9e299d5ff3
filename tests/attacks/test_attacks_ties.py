"""Rounded outputs tie: a tie that the wrong class wins is a break, also after a tie that the label won."""

import numpy as np
import pytest
import torch

from audit.attacks.pgd import pgd
from audit.attacks.random_noise import random_noise
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square
from audit.models.torch_module import wrap
from audit.vocabulary import Threat


class Tied(torch.nn.Module):
    """Label 1 ties with class 2 and wins where the first pixel is dark, ties with class 0 and loses where it is bright."""

    def forward(self, x):
        slope = 1e-3 * (x[:, 0, 0, 0] - x[:, 0, 0, 0].detach())
        bright = (x[:, 0, 0, 0] > 0.55).float()
        return torch.stack([bright - 1 + slope, torch.zeros_like(slope), -bright], dim=1)


ATTACKS = {
    "pgd": lambda o, b, t, stop: pgd(o, b, t, loss="cross_entropy", steps=10, seed=0, purpose="t", stop_early=stop),
    "square": lambda o, b, t, stop: square(o, b, t, queries=40, seed=0, purpose="t", stop_early=stop),
    "noise": lambda o, b, t, stop: random_noise(o, b, t, draws=40, seed=0, purpose="t"),
}


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_tie_that_is_an_error_is_found(name, stop):
    classifier = wrap(Tied(), image_shape=(1, 2, 2), device="cpu")
    x = torch.full((12, 1, 2, 2), 0.5)
    batch = Batch(
        images=x,
        labels=torch.ones(12, dtype=torch.long),
        targets=torch.ones(12, dtype=torch.long),
        ids=tuple("abcdefghijkl"),
        rows=np.arange(12),
    )
    oracle, threat = Oracle(classifier, 12), Threat.parse("linf:0.1")
    assert bool((classifier.logits(x).argmax(dim=1) == 1).all())
    assert verify(oracle, batch, ATTACKS[name](oracle, batch, threat, stop), threat).broken.all()
