"""A universal perturbation: one delta for all images (Moosavi-Dezfooli et al. 2017, arXiv 1610.08401), Linf and L2.

Found by gradient ascent on the mean loss of the whole set (Shafahi et al. 2020, arXiv 1811.11304). It belongs to the set: it
cannot be found chunk by chunk, and by nature its value for an example depends on the others.
"""

from __future__ import annotations

import torch

from audit.attacks.l1_ball import row_sum
from audit.attacks.losses import logit_margin
from audit.attacks.minimal import in_radius, unit
from audit.attacks.pgd import step_size
from audit.attacks.run import Batch, Oracle, misclassified
from audit.errors import InputError
from audit.vocabulary import Norm, Threat


def universal(oracle: Oracle, batch: Batch, threat: Threat, *, steps: int = 40) -> torch.Tensor:
    """The delta (c, h, w) met in the norm's ball that makes most of `batch` misclassified; `applied` adds it to images.

    Ascends the mean margin of the images that are still right, so that those already wrong do not pull. The step shrinks as in PGD.

    Differs from the source in: every step sees the whole set, whose forward pass also says which delta is best; the loss is the
    margin, cut at 0, instead of the cross-entropy, cut at a number to be chosen.

    Args:
        oracle: the model.
        batch: the images to find it on, all at once, in the canonical order of the set; at least one.
        threat: Linf or L2.
        steps: gradients of every image; the last delta costs one more forward pass.

    Raises:
        InputError: the norm is L1, or there is no image.
    """
    if threat.norm is Norm.L1 or not len(batch):
        raise InputError("a universal perturbation is found for linf or l2, on at least one image")
    delta = torch.zeros_like(batch.images[:1])
    best, most = delta, 0
    radius = torch.full((1,), threat.epsilon, device=delta.device)
    for taken in range(steps + 1 if threat.epsilon > 0 else 0):
        points = applied(batch.images, delta[0])
        if taken < steps:
            logits, gradient = oracle.gradient(batch, points, logit_margin)
        else:
            logits, gradient = oracle.logits(batch, points), torch.zeros_like(points)
        wrong = misclassified(logits, batch.labels)
        if int(wrong.sum()) > most:
            best, most = delta, int(wrong.sum())
        pull = torch.where(wrong[:, None, None, None], 0.0, gradient)
        mean = row_sum(pull.flatten(1).T).view_as(delta)
        direction = mean.sign() if threat.norm is Norm.LINF else unit(mean)
        delta = in_radius(delta + step_size(taken, steps) * threat.epsilon * direction, radius, threat.norm)
    return best[0]


def applied(images: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """`images` (n, c, h, w) plus `delta` (c, h, w), in [0, 1]."""
    return (images + delta).clamp(0, 1)
