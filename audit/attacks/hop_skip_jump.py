"""HopSkipJump (Chen et al. 2020, arXiv 1904.02144): the closest misclassified image from labels alone, L2 and Linf; L1 is ours.

In turn: estimate the boundary's normal from the labels around a point on it, step along it, and halve back towards the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from audit.attacks.ball import distance, length
from audit.attacks.label_only import Closest, random_starts, to_the_boundary
from audit.attacks.randomness import generators, in_parts, normal
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Norm

# B_0: questions of the first estimate; the t-th asks sqrt(t) times as many.
FIRST_QUESTIONS = 100
# Radius of the first estimate, in [0, 1] pixels; later ones follow the distance.
FIRST_RADIUS = 0.1
# Step lengths tried at once, each half of the one before.
_STEPS = 6
# Random images asked about for a start, and the share of the questions they may take.
_STARTS, _STARTS_SHARE = 48, 0.1
_TINY = 1e-12


def hop_skip_jump(
    oracle: Oracle, batch: Batch, norm: Norm, *, queries: int, seed: int, purpose: str, until: float = 0.0
) -> torch.Tensor:
    """The closest misclassified image met, (n, c, h, w); the clean image where none was.

    Differs from the source in: all step lengths are asked at once, the best of several random starts is taken, the radius of the
    estimate doubles while every answer is the same, and the closest point of all is kept. L1 halves along the projections onto
    L1 balls and steps along the estimate itself.

    Args:
        oracle: the model; only the largest of its logits is used.
        batch: clean images and labels.
        norm: of the distance.
        queries: forward passes per example at most.
        seed: of the audit.
        purpose: names the random draws.
        until: an example is done once its distance is no larger.
    """
    if not len(batch) or queries < 1:
        return batch.images.clone()
    closest = Closest(oracle, batch, norm)
    starts = max(1, min(_STARTS, int(_STARTS_SHARE * queries)))
    random_starts(closest, batch, draws=starts, seed=seed, purpose=purpose)
    sources, left = generators(seed, batch.ids, purpose), queries - starts
    d = batch.images[0].numel()
    # gamma = 1: the boundary is met to within theta = d^-3/2 of the distance.
    halvings = max(1, math.ceil(1.5 * math.log2(d)))
    alive = torch.arange(len(batch), device=batch.images.device)
    live, points, widen, t = batch, closest.images, torch.ones_like(closest.distances), 0
    while True:
        kept = (closest.distances[alive].isfinite() & (closest.distances[alive] > until)).nonzero()[:, 0]
        alive, live, points, widen = alive[kept], live.take(kept), points[kept], widen[kept]
        sources = [sources[i] for i in kept.tolist()]
        if not len(live) or left < 1:
            break
        spent = min(halvings, left)
        points, left, t = to_the_boundary(closest, alive, live, points, norm, spent), left - spent, t + 1
        questions = min(int(FIRST_QUESTIONS * math.sqrt(t)), left - 1)
        if questions < 1:
            break
        gaps = distance(points, live.images, norm)
        delta = torch.full_like(gaps, FIRST_RADIUS) if t == 1 else distance(points, live.images, Norm.L2) / d
        v, share = _normal_at(closest, live, points, sources, questions, delta * widen)
        widen = torch.where((share == 0) | (share == 1), 2 * widen, widen)
        xi = (gaps / math.sqrt(t))[:, None] * 0.5 ** torch.arange(min(_STEPS, left - questions), device=gaps.device)
        v = v.sign() if norm is Norm.LINF else v
        tried = (points[:, None] + xi.to(points)[:, :, None, None, None] * v[:, None]).clamp(0, 1)
        wrong = closest.ask(alive, live, tried)
        left -= questions + tried.shape[1]
        # The longest step that stays misclassified; the same point again where none does.
        longest = tried[torch.arange(len(live), device=v.device), wrong.long().argmax(dim=1)]
        points = torch.where(wrong.any(dim=1).view(-1, 1, 1, 1), longest, points)
    return closest.images


def _normal_at(
    closest: Closest,
    live: Batch,
    points: torch.Tensor,
    sources: Sequence[torch.Generator],
    questions: int,
    delta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The unit direction (n, c, h, w) into the other class at `points`, and the share (n,) of the answers that were misclassified.

    1 / B sum over b of (phi_b - mean phi) u_b with phi = 1 where x + delta u_b is misclassified, else -1; where all are the same,
    the mean of phi_b u_b.
    """
    weighted, plain = torch.zeros_like(points), torch.zeros_like(points)
    wrong = torch.zeros(len(points), dtype=torch.int64, device=points.device)
    width = delta.to(points).view(-1, 1, 1, 1)
    for u in in_parts(sources, questions, points, normal):
        unit = u / length(u.flatten(0, 1), Norm.L2).to(u).clamp(min=_TINY).view(len(points), -1, 1, 1, 1)
        near = (points[:, None] + width[:, None] * unit).clamp(0, 1)
        answers = closest.asked(live, near)
        # What was really asked about, in [0, 1].
        unit = (near - points[:, None]) / width[:, None]
        for b in range(unit.shape[1]):
            phi = torch.where(answers[:, b], 1.0, -1.0).to(points)
            weighted += phi.view(-1, 1, 1, 1) * unit[:, b]
            plain += unit[:, b]
        wrong += answers.sum(dim=1)
    share = wrong.double() / questions
    mean = (2 * share - 1).to(points).view(-1, 1, 1, 1)
    same = ((share == 0) | (share == 1)).view(-1, 1, 1, 1)
    found = torch.where(same, weighted, weighted - mean * plain)
    return found / length(found, Norm.L2).to(found).clamp(min=_TINY).view(-1, 1, 1, 1), share
