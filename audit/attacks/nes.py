"""NES (Ilyas et al. 2018, arXiv 1804.08598): projected steps along a gradient that queries estimate."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.pgd import step_size
from audit.attacks.randomness import generators, normal
from audit.attacks.run import Batch, Oracle
from audit.attacks.slopes import slope
from audit.attacks.strongest import Strongest
from audit.vocabulary import Threat

# sigma, the paper's search variance; its n is twice the number of pairs.
SEARCH_WIDTH = 0.001
PAIRS = 25
# The paper's code smooths the estimates over time.
MOMENTUM = 0.9


def nes(
    oracle: Oracle, batch: Batch, threat: Threat, *, queries: int, seed: int, purpose: str, stop_early: bool, pairs: int = PAIRS
) -> torch.Tensor:
    """The strongest iterate by margin, (n, c, h, w), starting from the clean image.

    Differs from the source in: the loss is the margin, the step shrinks as in PGD, and each iterate is asked once itself.

    Args:
        oracle: the model; only its logits are used.
        batch: clean images and labels.
        threat: any norm.
        queries: forward passes per example at most.
        seed: of the audit.
        purpose: names the random draws.
        stop_early: drop an example once misclassified; otherwise spend the full query count.
        pairs: pairs of queries per step.
    """
    steps = queries // (2 * pairs + 1)
    if threat.epsilon == 0 or not len(batch) or steps < 1:
        return batch.images.clone()
    ball, found = Ball.around(batch.images, threat), Strongest(batch)
    sources = generators(seed, batch.ids, purpose)
    alive = torch.arange(len(batch), device=batch.images.device)
    live, points, g = batch, batch.images, torch.zeros_like(batch.images)
    for taken in range(steps):
        g = MOMENTUM * g + (1 - MOMENTUM) * slope(oracle, live, points, sources, pairs=pairs, width=SEARCH_WIDTH, draw=normal)
        points = ball.project(points + step_size(taken, steps) * threat.epsilon * ball.steepest(points, g))
        broken = found.note(alive, points, oracle.logits(live, points), live)
        if stop_early and bool(broken.any()):
            kept = (~broken).nonzero()[:, 0]
            alive, live, ball, points, g = alive[kept], live.take(kept), ball.take(kept), points[kept], g[kept]
            sources = [sources[i] for i in kept.tolist()]
            if not len(live):
                break
    return found.images
