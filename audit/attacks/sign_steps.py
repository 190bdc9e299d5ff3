"""The nearest change of label by sign steps towards other classes: empirical boundary distance 2 (Guo et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from audit.attacks.ball import distance
from audit.attacks.losses import margin_targeted
from audit.attacks.run import Batch, Oracle, misclassified
from audit.vocabulary import Norm

MOST_TARGETS = 9
LIMIT = 0.5
# The first step is a quarter of a grey level, and each is 1.5 times the one before: together they pass the limit.
FIRST, GROWTH, STEPS = 1 / 1020, 1.5, 15
# Halvings of the last step, after which the distance is known to one percent of it.
HALVINGS = 7


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Linf distances (n,) float64 of the nearest change; where `censored` (n,), the distance up to which there was none."""

    distance: torch.Tensor
    censored: torch.Tensor


def passes(classes: int) -> tuple[int, int]:
    """Forward and backward passes that one example takes at most."""
    targets = min(MOST_TARGETS, classes - 1)
    return 1 + targets * (STEPS + 1 + HALVINGS), targets * STEPS


def nearest_by_sign_steps(oracle: Oracle, batch: Batch) -> Nearest:
    """Walk towards each of the nearest classes in turn, and keep the shortest way that changed the label to any other.

    x <- clip(x + eta sign(grad(z_t - z_y))), eta growing, until the label changes or the change exceeds 0.5 in Linf; then the last
    step is halved. The nearest min(9, K - 1) classes are those with the smallest z_y - z_t at the clean image. On a linear model
    this finds the exact distance.

    Args:
        oracle: the model.
        batch: clean images that it classifies rightly.
    """
    count, device = len(batch), batch.images.device
    best = torch.full((count,), LIMIT, dtype=torch.float64, device=device)
    found = torch.zeros(count, dtype=torch.bool, device=device)
    if not count:
        return Nearest(distance=best, censored=~found)
    logits = oracle.logits(batch, batch.images).nan_to_num(nan=0.0)
    others = logits.scatter(1, batch.labels[:, None], -torch.inf)
    order = others.argsort(dim=1, descending=True, stable=True)[:, : min(MOST_TARGETS, logits.shape[1] - 1)]
    for column in range(order.shape[1]):
        away = _towards(oracle, batch.aimed(order[:, column]), best)
        nearer = away < best
        best = torch.where(nearer, away, best)
        found |= away.isfinite()
    return Nearest(distance=best, censored=~found)


def _towards(oracle: Oracle, batch: Batch, best: torch.Tensor) -> torch.Tensor:
    """Linf distances (n,) at which the label changes on the way to the targets, infinite where it does not within `best` (n,)."""
    away = torch.full_like(best, torch.inf)
    alive = torch.arange(len(batch), device=best.device)
    points = batch.images.clone()
    for step in range(STEPS):
        if not len(alive):
            break
        live = batch.take(alive)
        here = points[alive]
        _, gradient = oracle.gradient(live, here, margin_targeted)
        there = (here + FIRST * GROWTH**step * gradient.sign()).clamp(0, 1)
        changed = misclassified(oracle.logits(live, there), live.labels)
        if changed.any():
            rows = changed.nonzero()[:, 0]
            away[alive[rows]] = _last_step(oracle, live.take(rows), here[rows], there[rows])
        points[alive] = there
        # Whoever is already farther than the nearest change by another way gains nothing by going on.
        useful = ~changed & (distance(there, live.images, Norm.LINF) < best[alive]) & (there != here).flatten(1).any(dim=1)
        alive = alive[useful]
    return torch.where(away <= best, away, torch.inf)


def _last_step(oracle: Oracle, batch: Batch, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Halve the way from `low` to `high`, both (n, c, h, w), keeping the change at `high`; its Linf distance (n,)."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        changed = misclassified(oracle.logits(batch, middle), batch.labels)[:, None, None, None]
        low, high = torch.where(changed, low, middle), torch.where(changed, middle, high)
    return distance(high, batch.images, Norm.LINF)
