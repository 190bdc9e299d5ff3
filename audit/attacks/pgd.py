"""Projected gradient descent with a random start (Madry et al. 2018, arXiv 1706.06083), Linf, L2 and L1.

Differs from the source in: the step shrinks.
"""

from __future__ import annotations

import math

import torch

from audit.attacks.ball import Ball
from audit.attacks.losses import LOSSES
from audit.attacks.randomness import generators
from audit.attacks.run import Batch, Oracle
from audit.attacks.strongest import Strongest
from audit.vocabulary import Threat


def step_size(taken: int, steps: int) -> float:
    """Step as a multiple of epsilon: from 2 (across the ball) down to 0 along a half cosine.

    Measured on 28x28 networks, standard and adversarially trained, 20 steps: breaks 0 to 3 % more images than the usual
    constant 2.5 / steps, and on a linear model converges to the optimum where the constant step stays 1 to 4 % short (L2).

    >>> step_size(0, 20), round(step_size(10, 20), 6)
    (2.0, 1.0)
    """
    return 1 + math.cos(math.pi * taken / steps)


def pgd(
    oracle: Oracle, batch: Batch, threat: Threat, *, loss: str, steps: int, seed: int, purpose: str, stop_early: bool
) -> torch.Tensor:
    """The strongest iterate by margin, (n, c, h, w).

    Args:
        oracle: the model.
        batch: clean images and labels.
        threat: any norm.
        loss: a key of `LOSSES`, maximised in steps of `step_size` times epsilon.
        steps: gradient steps; the last iterate costs one more forward pass.
        seed: of the audit.
        purpose: names the random start; another name gives another start.
        stop_early: drop an example at its first misclassified iterate (the cascade); otherwise spend the full budget on each.
    """
    if threat.epsilon == 0 or not len(batch):
        return batch.images.clone()
    ball = Ball.around(batch.images, threat)
    found = Strongest(batch)
    points = ball.random_points(generators(seed, batch.ids, purpose))
    alive = torch.arange(len(batch), device=points.device)
    live = batch
    for taken in range(steps + 1):
        if taken < steps:
            logits, gradient = oracle.gradient(live, points, LOSSES[loss])
        else:
            logits, gradient = oracle.logits(live, points), torch.zeros_like(points)
        broken = found.note(alive, points, logits, live)
        keep = ~logits.isnan().any(dim=1)
        if stop_early:
            keep &= ~broken
        if not bool(keep.all()):
            kept = keep.nonzero()[:, 0]
            alive, points, gradient, ball, live = alive[kept], points[kept], gradient[kept], ball.take(kept), live.take(kept)
        if taken == steps or not len(live):
            break
        points = ball.project(points + step_size(taken, steps) * threat.epsilon * ball.steepest(points, gradient))
    return found.images
