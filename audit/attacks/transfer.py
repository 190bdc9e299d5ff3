"""Transfer (Papernot et al. 2017, arXiv 1602.02697): images crafted on a surrogate with gradients, tried on the audited model.

No example is dropped once the surrogate is fooled: the further an image lies beyond the surrogate's boundary, the likelier it is to
lie beyond that of another model.

PGD against APGD on the surrogate, 40 steps, ten pairs of model and norm (digits and Fashion-MNIST, Linf and L2; a standard and an
adversarially trained network audited, these and a residual one as surrogates; 171 to 193 images each): broken in all 452 and 452
with cross-entropy, 466 and 460 with the margin. At Linf PGD broke 3 more in all with either loss. So it stays PGD.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle
from audit.models import Classifier
from audit.vocabulary import Threat


def transfer(
    oracle: Oracle, batch: Batch, threat: Threat, *, surrogate: Classifier, loss: str, steps: int, seed: int, purpose: str
) -> torch.Tensor:
    """The strongest iterate of PGD on the `surrogate`, (n, c, h, w); the audited model, `oracle`, is not asked.

    Args:
        oracle: the audited model.
        batch: clean images and labels.
        threat: any norm.
        surrogate: another model of the same images and classes, with gradients.
        loss: a key of `losses.LOSSES`.
        steps: gradient steps on the surrogate.
        seed: of the audit.
        purpose: names the random start.
    """
    device = surrogate.device
    own = replace(batch, images=batch.images.to(device), labels=batch.labels.to(device), targets=batch.targets.to(device))
    crafting = Oracle(surrogate, len(oracle.forward))
    return pgd(crafting, own, threat, loss=loss, steps=steps, seed=seed, purpose=purpose, stop_early=False).to(batch.images)
