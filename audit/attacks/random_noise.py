"""Random noise, the floor under every attack: the strongest of k random points of the ball."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.losses import margin
from audit.attacks.randomness import generators
from audit.attacks.run import Batch, Oracle, misclassified
from audit.vocabulary import Threat


def random_noise(oracle: Oracle, batch: Batch, threat: Threat, *, draws: int, seed: int, purpose: str) -> torch.Tensor:
    """The draw with the largest margin, (n, c, h, w); an example is dropped at its first misclassified draw.

    Draws alternate between points uniform in the ball and points on its edge (Linf corners, the L2 sphere).
    """
    if threat.epsilon == 0 or not len(batch):
        return batch.images.clone()
    ball = Ball.around(batch.images, threat)
    strongest = batch.images.clone()
    highest = torch.full((len(batch),), -torch.inf, device=strongest.device)
    sources = generators(seed, batch.ids, purpose)
    alive = torch.arange(len(batch), device=strongest.device)
    live = batch
    for draw in range(draws):
        points = ball.random_points(sources, on_edge=draw % 2 == 1)
        logits = oracle.logits(live, points)
        reached = margin(logits, live.labels)
        broken = misclassified(logits, live.labels)
        # A tie of logits may be an error all the same: then it is the stronger of two equal margins.
        better = (reached > highest[alive]) | (broken & (reached == highest[alive]))
        strongest[alive[better]] = points[better]
        highest[alive[better]] = reached[better]
        kept = (~broken).nonzero()[:, 0]
        alive, ball, live = alive[kept], ball.take(kept), live.take(kept)
        sources = [sources[i] for i in kept.tolist()]
        if not len(live):
            break
    return strongest
