"""N-Attack (Li et al. 2019, arXiv 1905.00441): learn a distribution around the image whose draws are adversarial."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum
from audit.attacks.losses import margin
from audit.attacks.randomness import generators, in_parts, normal
from audit.attacks.run import Batch, Oracle
from audit.attacks.strongest import Strongest
from audit.vocabulary import Threat

# The paper's sigma and learning rate; its population is 300, for budgets ten to a hundred times larger.
SIGMA = 0.1
RATE = 0.02
POPULATION = 50
# Values are kept this far from -1 and 1, where z is infinite.
_INSIDE = 1e-3
_TINY = 1e-7


def n_attack(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    *,
    queries: int,
    seed: int,
    purpose: str,
    stop_early: bool,
    population: int = POPULATION,
) -> torch.Tensor:
    """The strongest draw by margin, (n, c, h, w).

    z = mu + sigma eps, x' = the nearest allowed image to g(z); mu moves along the mean of the draws eps, each weighted by its
    margin, standardised within the population. Differs from the source in: g(z) = (1 + z / sqrt(1 + z^2)) / 2 in place of
    (1 + tanh z) / 2, whose last bit depends on an image's place in its batch.

    Args:
        oracle: the model; only its logits are used.
        batch: clean images and labels.
        threat: any norm.
        queries: forward passes per example at most.
        seed: of the audit.
        purpose: names the random draws.
        stop_early: drop an example once misclassified; otherwise spend the full query count.
        population: draws per step, b.
    """
    population = min(population, queries)
    if threat.epsilon == 0 or not len(batch) or queries < 1:
        return batch.images.clone()
    ball, found = Ball.around(batch.images, threat), Strongest(batch)
    sources = generators(seed, batch.ids, purpose)
    alive = torch.arange(len(batch), device=batch.images.device)
    live, mu = batch, _unsquashed(batch.images)
    for _ in range(queries // population):
        draws, losses = [], []
        broken = torch.zeros(len(live), dtype=torch.bool, device=mu.device)
        for eps in in_parts(sources, population, mu, normal):
            points = torch.stack([ball.project(_squashed(mu + SIGMA * eps[:, i])) for i in range(eps.shape[1])], dim=1)
            logits = oracle.several(live, points)
            for i in range(eps.shape[1]):
                broken |= found.note(alive, points[:, i], logits[:, i], live)
                losses.append(torch.nan_to_num(margin(logits[:, i], live.labels), nan=0.0, posinf=0.0, neginf=0.0))
            draws.append(eps)
        weights = torch.stack(losses, dim=1)
        centred = weights - row_sum(weights)[:, None] / population
        spread = (row_sum(centred * centred) / population).sqrt() + _TINY
        total = torch.zeros_like(mu)
        for i, eps in enumerate(torch.cat(draws, dim=1).unbind(dim=1)):
            total += (centred[:, i] / spread).view(-1, 1, 1, 1) * eps
        mu = mu + RATE / (population * SIGMA) * total
        if stop_early and bool(broken.any()):
            kept = (~broken).nonzero()[:, 0]
            alive, live, ball, mu = alive[kept], live.take(kept), ball.take(kept), mu[kept]
            sources = [sources[i] for i in kept.tolist()]
            if not len(live):
                break
    return found.images


def _squashed(z: torch.Tensor) -> torch.Tensor:
    return (1 + z / (1 + z * z).sqrt()) / 2


def _unsquashed(images: torch.Tensor) -> torch.Tensor:
    y = (2 * images - 1) * (1 - _INSIDE)
    return y / (1 - y * y).sqrt()
