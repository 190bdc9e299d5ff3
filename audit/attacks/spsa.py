"""SPSA (Uesato et al. 2018, arXiv 1802.05666): Adam on differences along random corners of a small cube."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.randomness import generators, signs
from audit.attacks.run import Batch, Oracle
from audit.attacks.slopes import slope
from audit.attacks.strongest import Strongest
from audit.vocabulary import Norm, Threat

# delta and alpha / epsilon of the paper at epsilon 8/255; Adam's own constants.
PERTURBATION = 0.01
STEP = 0.3
PAIRS = 25
_BETA_1, _BETA_2, _TINY = 0.9, 0.999, 1e-8


def spsa(
    oracle: Oracle, batch: Batch, threat: Threat, *, queries: int, seed: int, purpose: str, stop_early: bool, pairs: int = PAIRS
) -> torch.Tensor:
    """The strongest iterate by margin, (n, c, h, w), starting from the clean image.

    Adam moves each value by about alpha: `STEP` epsilon for Linf, and the share of it that makes the whole step as long in the
    norm for L2 and L1. Differs from the source in: far fewer directions per step, and each iterate is asked once itself.

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
    pixels = batch.images[0].numel()
    alpha = STEP * threat.epsilon / {Norm.LINF: 1.0, Norm.L2: pixels**0.5, Norm.L1: float(pixels)}[threat.norm]
    live, points, m, v = batch, batch.images, torch.zeros_like(batch.images), torch.zeros_like(batch.images)
    for taken in range(1, steps + 1):
        g = slope(oracle, live, points, sources, pairs=pairs, width=PERTURBATION, draw=signs)
        m, v = _BETA_1 * m + (1 - _BETA_1) * g, _BETA_2 * v + (1 - _BETA_2) * g * g
        update = m / (1 - _BETA_1**taken) / ((v / (1 - _BETA_2**taken)).sqrt() + _TINY)
        points = ball.project(points + alpha * update)
        broken = found.note(alive, points, oracle.logits(live, points), live)
        if stop_early and bool(broken.any()):
            kept = (~broken).nonzero()[:, 0]
            alive, live, ball, points, m, v = alive[kept], live.take(kept), ball.take(kept), points[kept], m[kept], v[kept]
            sources = [sources[i] for i in kept.tolist()]
            if not len(live):
                break
    return found.images
