"""Every attack of the table on bad input: the outcome is one of three, and the passes are bounded."""

import numpy as np
import pytest
import torch

from audit.attacks.cascade import worst_case
from audit.attacks.stages import ATTACKS, stages
from audit.data import Chunk
from audit.evidence import BROKEN, SURVIVED, UNKNOWN
from audit.models.torch_module import wrap
from audit.profiles import OUTSIDE, Search
from audit.vocabulary import Norm, Threat

STEPS = 20
NORMS = {
    OUTSIDE: (Norm.L2, Norm.L1),
    "DDN": (Norm.L2,),
    "C&W": (Norm.L2,),
    "DeepFool": (Norm.LINF, Norm.L2),
    "boundary attack": (Norm.L2,),
}
EVERY = [(name, norm) for name in ATTACKS for norm in NORMS.get(name, tuple(Norm))]
# These follow gradients, so that none that is finite means no answer.
ASKING = {"random noise", "Square", "NES", "SPSA", "N-Attack", "HopSkipJump", "boundary attack"}
# Passes per step at most, and beside them: halvings, Jacobians, search steps.
PER_STEP, BESIDE = 12, 80


class Constant(torch.nn.Module):
    """The second of three classes, whatever it sees."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 1.0, 0.5]).expand(len(x), 3) + 0 * x.flatten(1)[:, :1]


class Kinked(torch.nn.Module):
    """Finite scores of three classes, by the mean of the image, with gradients that are not numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.flatten(1).mean(dim=1, keepdim=True)
        steep = (x - x.detach()).flatten(1).sqrt().sum(dim=1, keepdim=True)
        return torch.cat((0.3 - mean, mean - 0.3, mean - 0.9), dim=1) * 5 + 0 * steep


def attacked(model: torch.nn.Module, name: str, norm: Norm, epsilon: float):
    images = 0.4 + 0.2 * torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    chunk = Chunk(positions=np.arange(4), ids=np.arange(4).astype(str), labels=np.ones(4, dtype=np.int64), images=images.numpy())
    classifier = wrap(model, image_shape=(1, 4, 4), device="cpu")
    search = Search(attack=name, steps=STEPS, loss="cross_entropy", start="uniform", radius=4 if name == OUTSIDE else 0)
    clean = classifier.logits(images).double().numpy()
    found = worst_case(classifier, chunk, clean, Threat(norm=norm, epsilon=epsilon, written="x"), stages((search,), 0, 3), shown=0)
    assert (found.forward_passes + found.backward_passes).max() <= PER_STEP * STEPS + BESIDE
    assert set(found.state) <= {BROKEN, SURVIVED, UNKNOWN} and not found.outside.any()
    assert np.isfinite(found.distance).all() and (found.distance <= epsilon).all()
    return found


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_a_constant_model_survives(name, norm):
    for epsilon in (0.1, 1.0):
        assert (attacked(Constant(), name, norm, epsilon).state == SURVIVED).all()


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_without_a_budget_nothing_is_asked(name, norm):
    found = attacked(Kinked(), name, norm, 0.0)
    assert (found.state == SURVIVED).all() and not found.forward_passes.any() and not found.backward_passes.any()


@pytest.mark.parametrize(("name", "norm"), EVERY)
def test_gradients_that_are_not_numbers_leave_the_outcome_unknown(name, norm):
    found = attacked(Kinked(), name, norm, 0.05)
    assert (found.state == (SURVIVED if name in ASKING else UNKNOWN)).all()


@pytest.mark.parametrize("name", ["random noise", "Square"])
def test_what_only_asks_breaks_a_ball_of_the_whole_range(name):
    assert (attacked(Kinked(), name, Norm.LINF, 1.0).state == BROKEN).any()
