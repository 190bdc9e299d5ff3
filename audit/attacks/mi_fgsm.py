"""Momentum iterative FGSM (Dong et al. 2018, arXiv 1710.06081), Linf and L2, and its L1 form."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum
from audit.attacks.losses import LOSSES
from audit.attacks.run import Batch, Oracle
from audit.attacks.strongest import Strongest
from audit.vocabulary import Threat

# Smallest divisor of a gradient: a row of zeros stays zero.
_TINY = 1e-30


def mi_fgsm(
    oracle: Oracle, batch: Batch, threat: Threat, *, loss: str, steps: int, stop_early: bool, decay: float = 1.0
) -> torch.Tensor:
    """The strongest iterate by margin, (n, c, h, w), of steps of epsilon / `steps` from the clean image.

    Args:
        oracle: the model.
        batch: clean images, labels, and the targets of a targeted loss.
        threat: any norm; the steps are `Ball.steepest`, the sign for Linf and the normalised gradient for L2.
        loss: a key of `LOSSES`, maximised.
        steps: T, gradient steps; the last iterate costs one more forward pass.
        stop_early: drop an example at its first misclassified iterate; otherwise spend the full budget on each.
        decay: mu; g <- mu g + gradient / |gradient|_1.
    """
    if threat.epsilon == 0 or not len(batch) or steps < 1:
        return batch.images.clone()
    ball, live, found = Ball.around(batch.images, threat), batch, Strongest(batch)
    points, momentum = batch.images, torch.zeros_like(batch.images)
    alive = torch.arange(len(batch), device=points.device)
    for _ in range(steps):
        logits, gradient = oracle.gradient(live, points, LOSSES[loss])
        broken = found.note(alive, points, logits, live)
        keep = ~logits.isnan().any(dim=1)
        if stop_early:
            keep &= ~broken
        if not bool(keep.all()):
            kept = keep.nonzero()[:, 0]
            alive, points, gradient, momentum = alive[kept], points[kept], gradient[kept], momentum[kept]
            ball, live = ball.take(kept), live.take(kept)
            if not len(live):
                return found.images
        momentum = decay * momentum + gradient / row_sum(gradient.abs()).clamp(min=_TINY).view(-1, 1, 1, 1)
        points = ball.project(points + threat.epsilon / steps * ball.steepest(points, momentum))
    found.note(alive, points, oracle.logits(live, points), live)
    return found.images
