"""Random noise, the floor under every attack: the strongest of k random points of the ball."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.randomness import generators
from audit.attacks.run import Batch, Oracle
from audit.attacks.strongest import Strongest
from audit.vocabulary import Threat


def random_noise(oracle: Oracle, batch: Batch, threat: Threat, *, draws: int, seed: int, purpose: str) -> torch.Tensor:
    """The draw with the largest margin, (n, c, h, w); an example is dropped at its first misclassified draw.

    Draws alternate between points uniform in the ball and points on its edge (Linf corners, the L2 or L1 sphere).
    """
    if threat.epsilon == 0 or not len(batch):
        return batch.images.clone()
    ball = Ball.around(batch.images, threat)
    found = Strongest(batch)
    sources = generators(seed, batch.ids, purpose)
    alive = torch.arange(len(batch), device=batch.images.device)
    live = batch
    for draw in range(draws):
        points = ball.random_points(sources, on_edge=draw % 2 == 1)
        broken = found.note(alive, points, oracle.logits(live, points), live)
        kept = (~broken).nonzero()[:, 0]
        alive, ball, live = alive[kept], ball.take(kept), live.take(kept)
        sources = [sources[i] for i in kept.tolist()]
        if not len(live):
            break
    return found.images
