"""The attacks on a linear model, where the best attack is known: the margin can drop by epsilon times the dual norm of w.

An installation in which they fall short of that (another torch, a broken build, a changed default) would call models robust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from audit.attacks.ball import length
from audit.attacks.losses import margin
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.stages import stages
from audit.models import Classifier
from audit.models.torch_module import wrap
from audit.profiles import OUTSIDE, Search
from audit.vocabulary import Norm, Threat

_SHAPE, _EXAMPLES = (1, 4, 4), 8
# Lead of the right class; its distance in every norm lies well inside [0, 1] around the images.
_LEAD = 0.2
_ALL = (Norm.LINF, Norm.L2, Norm.L1)
_DUAL = {Norm.LINF: Norm.L1, Norm.L2: Norm.L2, Norm.L1: Norm.LINF}
# A budget that breaks no example, and one that a sound attack breaks them all in, in multiples of the distance.
_TOO_SMALL, _AMPLE = 0.9, 1.24


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One attack to test. One that looks for the `smallest` change is judged by the length of what it finds."""

    search: Search
    norms: tuple[Norm, ...] = _ALL
    smallest: bool = False


_STEPS = 10
TRIALS = (
    Trial(search=Search(attack="FGSM")),
    Trial(search=Search(attack="MI-FGSM", loss="margin", steps=_STEPS)),
    Trial(search=Search(attack="PGD", loss="margin", steps=_STEPS)),
    Trial(search=Search(attack="APGD", loss="margin", start="uniform", steps=_STEPS)),
    Trial(
        search=Search(attack=OUTSIDE, loss="margin", start="uniform", radius=4, steps=_STEPS),
        norms=(Norm.L2, Norm.L1),
        smallest=True,
    ),
    Trial(search=Search(attack="DeepFool", steps=3), norms=(Norm.LINF, Norm.L2), smallest=True),
    Trial(search=Search(attack="FAB", steps=5), smallest=True),
    Trial(search=Search(attack="FMN", steps=20), smallest=True),
    Trial(search=Search(attack="DDN", steps=20), norms=(Norm.L2,), smallest=True),
    Trial(search=Search(attack="C&W", steps=30), norms=(Norm.L2,), smallest=True),
    Trial(search=Search(attack="Square", steps=100), norms=(Norm.LINF,)),
    Trial(search=Search(attack="NES", steps=400), norms=(Norm.LINF,)),
    Trial(search=Search(attack="SPSA", steps=600), norms=(Norm.LINF,)),
    Trial(search=Search(attack="N-Attack", steps=200), norms=(Norm.LINF,)),
)
# From labels alone an attack goes step by step, which takes longer than all the others together.
TRIALS_OF_LABELS = (
    Trial(search=Search(attack="HopSkipJump", steps=1000), norms=(Norm.LINF, Norm.L2), smallest=True),
    Trial(search=Search(attack="boundary attack", steps=1000), norms=(Norm.L2,), smallest=True),
)


@cache
def self_test(*, labels_only: bool) -> Mapping[str, float]:
    """What each attack needs, in multiples of the closed-form optimum: 1 is perfect, infinity where it gains nothing.

    Attacks that need no more than labels are among them for models that give no more than that.

    An attack at a fixed budget that breaks nothing has reached a share of the largest possible drop of the margin; on a linear
    model it would need the inverse of that share times the optimal budget. Under a second on a CPU, the same in every process.
    """
    classifier, batch, weights = _linear_model()
    clean = margin(classifier.logits(batch.images), batch.labels).double()
    found = {}
    for trial in (*TRIALS, *(TRIALS_OF_LABELS if labels_only else ())):
        (stage,) = stages((trial.search,), 0, classifier.classes)
        for norm in trial.norms:
            slope = length(weights[None], _DUAL[norm])
            optimum = (-clean / slope).numpy()
            epsilon = float(_AMPLE * optimum.max() if trial.smallest else _TOO_SMALL * optimum.min())
            threat = Threat(norm=norm, epsilon=epsilon, written=f"{epsilon:.6g}")
            oracle = Oracle(classifier, len(batch))
            verified = verify(oracle, batch, stage.propose(oracle, batch, threat), threat)
            if trial.smallest:
                needed = np.where(verified.broken, verified.distance / optimum, np.inf)
            else:
                drop = (margin(torch.from_numpy(verified.logits), batch.labels) - clean).numpy()
                needed = np.divide(epsilon * float(slope), drop, out=np.full(len(batch), np.inf), where=drop > 0)
            found[f"{stage.name}, {norm.label}"] = float(needed.max())
    return found


def _linear_model() -> tuple[Classifier, Batch, torch.Tensor]:
    """Two classes, w.x apart, images around mid-grey at which class 0 leads by the same, and w."""
    source = torch.Generator().manual_seed(3)
    weights = torch.randn(_SHAPE, generator=source).flatten()
    x = 0.4 + 0.2 * torch.rand(_EXAMPLES, len(weights), generator=source)
    # Along w all images move to one lead.
    lead = x @ weights
    x = x - (lead - lead.mean())[:, None] * weights / (weights @ weights)
    offset = (_LEAD - float(lead.mean())) / 2
    linear = torch.nn.Linear(len(weights), 2)
    with torch.no_grad():
        linear.weight.copy_(torch.stack([weights / 2, -weights / 2]))
        linear.bias.copy_(torch.tensor([offset, -offset]))
    labels = torch.zeros(_EXAMPLES, dtype=torch.int64)
    ids = tuple(f"self-test-{i}" for i in range(_EXAMPLES))
    batch = Batch(images=x.view(-1, *_SHAPE), labels=labels, targets=labels, ids=ids, rows=np.arange(_EXAMPLES))
    return (
        wrap(torch.nn.Sequential(torch.nn.Flatten(), linear), image_shape=_SHAPE, device="cpu", block_rows=_EXAMPLES),
        batch,
        weights,
    )
