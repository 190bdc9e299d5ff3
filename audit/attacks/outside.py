"""A minimum-norm search that starts outside the ball and comes in, L2 and L1: the radius shrinks while adversarial, else it grows.

After the decoupled direction and norm attack (Rony et al. 2019, arXiv 1811.09600). Differs from it in: the start lies far outside,
the radius is reduced fast enough to come back to epsilon in a share of the steps, the loss is free, an example is done once it is
adversarial inside the ball, and in L1 a step goes part of the way to the best vertex of the current ball (Frank-Wolfe).
"""

from __future__ import annotations

import math

import torch

from audit.attacks.ball import Ball, useful_part
from audit.attacks.l1_ball import greedy_vertex, nearest_l1, row_sum
from audit.attacks.losses import LOSSES
from audit.attacks.run import Batch, Oracle
from audit.attacks.starts import start_points
from audit.errors import InputError
from audit.vocabulary import Norm, Threat

# The radius changes by at least this share a step, and falls from the first one to epsilon within this share of the steps.
_LEAST_CHANGE = 0.05
_WAY_IN = 0.3
# First and last step: in L2 as multiples of epsilon, in L1 as the share of the way to the vertex; a half cosine between them.
_STEPS = {Norm.L2: (1.0, 0.01), Norm.L1: (0.6, 0.02)}
_INSIDE = 1 - 1e-5
_TINY = 1e-30


def outside(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    *,
    loss: str,
    steps: int,
    start: str,
    radius: float,
    seed: int,
    purpose: str,
) -> torch.Tensor:
    """An adversarial image inside the ball where the search came to one, else the clean image, (n, c, h, w).

    Args:
        oracle: the model.
        batch: clean images, labels, and the targets of a targeted loss.
        threat: L2 or L1.
        loss: a key of `LOSSES`, maximised.
        steps: gradient steps; the last iterate costs one more forward pass.
        start: one of `starts.STARTS`, in the ball of the first radius.
        radius: the first one, in multiples of epsilon.
        seed: of the audit.
        purpose: names the random start; another name gives another start.

    Raises:
        InputError: the norm is Linf, where a search from outside found nothing that one from inside did not.
    """
    if threat.norm is Norm.LINF:
        raise InputError(f"the search from outside is defined for l2 and l1, not for {threat}")
    found = batch.images.clone()
    if threat.epsilon == 0 or not len(batch) or steps < 1:
        return found
    epsilon, norm = threat.epsilon, threat.norm
    change = max(_LEAST_CHANGE, 1 - radius ** (-1 / max(_WAY_IN * steps, 1)))
    first, last = _STEPS[norm]
    points = start_points(start, Ball.around(batch.images, threat.at(radius * epsilon)), batch, seed, purpose)
    radii = torch.full((len(batch),), radius * epsilon, device=points.device)
    alive, live = torch.arange(len(batch), device=points.device), batch
    for taken in range(steps + 1):
        if taken < steps:
            logits, gradient = oracle.gradient(live, points, LOSSES[loss])
        else:
            logits, gradient = oracle.logits(live, points), torch.zeros_like(points)
        answered = ~logits.isnan().any(dim=1)
        adversarial = (logits.argmax(dim=1) != live.labels) & answered
        gone = _length(points - live.images, norm)
        hit = adversarial & (gone <= epsilon)
        found[alive[hit]] = points[hit]
        if taken == steps:
            break
        nearer = (torch.minimum(radii, gone) * (1 - change)).clamp(min=epsilon * _INSIDE)
        radii = torch.where(adversarial, nearer, radii * (1 + _LEAST_CHANGE)).clamp(max=radius * epsilon)
        keep = answered & ~hit
        if not bool(keep.all()):
            kept = keep.nonzero()[:, 0]
            alive, points, gradient, radii, live = alive[kept], points[kept], gradient[kept], radii[kept], live.take(kept)
            if not len(live):
                break
        share = last + (first - last) * (1 + math.cos(math.pi * taken / steps)) / 2
        move = _l2_step if norm is Norm.L2 else _l1_step
        points = move(live.images, points, gradient, radii, share * (epsilon if norm is Norm.L2 else 1))
    return found


def _length(delta: torch.Tensor, norm: Norm) -> torch.Tensor:
    return row_sum(delta * delta).sqrt() if norm is Norm.L2 else row_sum(delta.abs())


def _l2_step(images: torch.Tensor, points: torch.Tensor, gradient: torch.Tensor, radii: torch.Tensor, step: float) -> torch.Tensor:
    """A step along the gradient, scaled to the sphere of `radii` (n,) and clipped."""
    largest = gradient.abs().flatten(1).amax(dim=1).clamp(min=_TINY).view(-1, 1, 1, 1)
    scaled = gradient / largest
    delta = points - images + step * scaled / _length(scaled, Norm.L2).clamp(min=_TINY).view(-1, 1, 1, 1)
    return (images + delta * (radii / _length(delta, Norm.L2).clamp(min=_TINY)).view(-1, 1, 1, 1)).clamp(0, 1)


def _l1_step(images: torch.Tensor, points: torch.Tensor, gradient: torch.Tensor, radii: torch.Tensor, share: float) -> torch.Tensor:
    """Part of the way to the vertex that a linear loss likes best, then back into the ball of `radii` (n,)."""
    vertex = greedy_vertex(images, useful_part(images, gradient), radii)
    return nearest_l1(images, points + share * (vertex - points), radii)
