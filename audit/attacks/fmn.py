"""Fast minimum-norm attack (Pintor et al. 2021, arXiv 2102.12827), for Linf, L2 and L1."""

from __future__ import annotations

import math

import torch

from audit.attacks.ball import length, useful_part
from audit.attacks.l1_ball import nearest_l1
from audit.attacks.minimal import Goal, Nearest, in_radius, linear_distance, unit
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Norm

# First step in multiples of the radius; for Linf per pixel, for the others as a length.
ALPHA = {Norm.LINF: 8.0, Norm.L2: 4.0, Norm.L1: 1.0}
ALPHA_END = 0.01
# The share by which the radius changes, first and last.
GAMMA = {Norm.LINF: 0.1, Norm.L2: 0.1, Norm.L1: 0.4}
GAMMA_END = 0.001


def fmn(
    oracle: Oracle, batch: Batch, norm: Norm, *, steps: int = 100, goal: Goal = Goal.ERROR, enough: float = 0.0
) -> torch.Tensor:
    """Follow the gradient of the margin inside a ball that shrinks while the goal is reached and grows otherwise.

    Until the first success the radius is the way gone plus the linearised way that is left, |margin| / (dual norm of the gradient).

    Differs from the source in: steps are multiples of the radius, so that they fit images and models of any scale; gradients that
    point out of [0, 1] are dropped; the linearised radius is lengthened by gamma, without which an L2 search may approach a
    boundary for ever and not cross it (measured: 42 of 60 images of a 28x28 network).

    Args:
        oracle: the model.
        batch: clean images, labels, and targets for a goal that has one.
        norm: any.
        steps: gradients.
        goal: what to look for.
        enough: an example is given up once it has an image at most this far.

    Returns:
        The nearest image met that reaches the goal, (n, c, h, w); the clean image where there was none.
    """
    nearest = Nearest(batch, norm, goal, enough)
    alive = torch.arange(len(batch), device=batch.images.device)
    live, delta = batch, torch.zeros_like(batch.images)
    most = length(torch.maximum(batch.images, 1 - batch.images), norm)
    epsilon = most
    first = ALPHA[norm] * (math.sqrt(batch.images[0].numel()) if norm is Norm.LINF and len(batch) else 1)
    for k in range(steps):
        if not len(live):
            break
        points = (live.images + delta).clamp(0, 1)
        logits, g = oracle.gradient(live, points, goal.loss)
        reached = nearest.note(alive, points, logits, live)
        cosine = (1 + math.cos(math.pi * k / steps)) / 2
        alpha = first * (ALPHA_END + (1 - ALPHA_END) * cosine)
        gamma = GAMMA_END + (GAMMA[norm] - GAMMA_END) * cosine
        g = useful_part(points, g)
        left = linear_distance(goal.loss(logits, live.labels, live.targets), g, norm)
        best = nearest.distance[alive]
        outward = torch.where(best.isfinite(), epsilon, length(delta, norm) + left)
        epsilon = torch.where(reached, torch.minimum((1 - gamma) * epsilon, best), (1 + gamma) * outward)
        epsilon = torch.minimum(epsilon, most)
        step = alpha * epsilon.float()[:, None, None, None] * unit(g)
        if norm is Norm.L1:
            delta = nearest_l1(live.images, live.images + delta + step, epsilon) - live.images
        else:
            delta = (live.images + in_radius(delta + step, epsilon, norm)).clamp(0, 1) - live.images
        kept = nearest.open(alive, logits, delta)
        if len(kept) < len(alive):
            alive, live, delta, epsilon, most = alive[kept], live.take(kept), delta[kept], epsilon[kept], most[kept]
    return nearest.images
