"""The boundary attack (Brendel et al. 2018, arXiv 1712.04248): a walk along the boundary towards the image, L2, labels only."""

from __future__ import annotations

import torch

from audit.attacks.ball import length
from audit.attacks.l1_ball import row_sum
from audit.attacks.label_only import Closest, random_starts, to_the_boundary
from audit.attacks.randomness import generators, in_parts, normal
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Norm

# Both steps start at this share of the distance and change by this factor.
FIRST_STEP, FACTOR = 0.05, 1.5
# The orthogonal step alone is asked about every so often; success is judged over windows of so many questions.
_EVERY, _WINDOW = 5, 20
# Shares of success between which a step stays as it is: of the orthogonal step, of the whole one.
_ORTHOGONAL, _WHOLE = (0.2, 0.5), (0.1, 0.25)
_STARTS, _STARTS_SHARE, _HALVINGS = 48, 0.1, 10
_TINY = 1e-12


def boundary_attack(oracle: Oracle, batch: Batch, *, queries: int, seed: int, purpose: str, until: float = 0.0) -> torch.Tensor:
    """The misclassified image closest in L2, (n, c, h, w); the clean image where none was met.

    Each proposal steps along the sphere around the image (delta) and then towards it (epsilon). Differs from the source in: it
    starts from the best of several random images, halved to the boundary, and the first step alone is asked about at every fifth
    proposal only.

    Args:
        oracle: the model; only the largest of its logits is used.
        batch: clean images and labels.
        queries: forward passes per example at most.
        seed: of the audit.
        purpose: names the random draws.
        until: an example is done once its distance is no larger.
    """
    if not len(batch) or queries < 1:
        return batch.images.clone()
    closest = Closest(oracle, batch, Norm.L2)
    starts = max(1, min(_STARTS, int(_STARTS_SHARE * queries)))
    random_starts(closest, batch, draws=starts, seed=seed, purpose=purpose)
    found = closest.distances.isfinite().nonzero()[:, 0]
    halvings = min(_HALVINGS, queries - starts)
    left = queries - starts - halvings
    if not len(found) or left < 1:
        return closest.images
    to_the_boundary(closest, found, batch.take(found), closest.images[found], Norm.L2, halvings)
    delta, epsilon = (torch.full_like(closest.distances, FIRST_STEP) for _ in range(2))
    walked, walked_right, whole, whole_right = (torch.zeros(len(batch), dtype=torch.int64, device=found.device) for _ in range(4))
    alive, step = found, 0
    proposals = (_EVERY * left + _EVERY - 1) // (_EVERY + 1)
    for u in in_parts(generators(seed, batch.ids, purpose), proposals, batch.images, normal):
        for eta in u.unbind(dim=1):
            alive = alive[closest.distances[alive] > until]
            if not len(alive):
                return closest.images
            live = batch.take(alive)
            sphere, point = _propose(live.images, closest.images[alive], eta[alive], delta[alive], epsilon[alive])
            step += 1
            both = step % _EVERY == 0
            wrong = closest.ask(alive, live, torch.stack([point, sphere] if both else [point], dim=1))
            whole[alive] += 1
            whole_right[alive] += wrong[:, 0]
            if both:
                walked[alive] += 1
                walked_right[alive] += wrong[:, 1]
                # A boundary too curved or too flat for the first step is so for both.
                factor = _change(walked, walked_right, _ORTHOGONAL)
                delta, epsilon = delta * factor, epsilon * factor
            epsilon = epsilon * _change(whole, whole_right, _WHOLE)
    return closest.images


def _change(tries: torch.Tensor, successes: torch.Tensor, steady: tuple[float, float]) -> torch.Tensor:
    """The factor (n,) for the steps whose window of `tries` is full; starts their windows anew."""
    share, full = successes.double() / tries.clamp(min=1), tries >= _WINDOW
    factor = torch.where(share > steady[1], FACTOR, torch.where(share < steady[0], 1 / FACTOR, 1.0))
    tries.masked_fill_(full, 0)
    successes.masked_fill_(full, 0)
    return torch.where(full, factor, torch.ones_like(factor))


def _propose(
    images: torch.Tensor, points: torch.Tensor, u: torch.Tensor, delta: torch.Tensor, epsilon: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The point after the step along the sphere around `images`, and after the step towards them, both (n, c, h, w)."""

    def per_row(values: torch.Tensor) -> torch.Tensor:
        return values.to(points).view(-1, 1, 1, 1)

    source = images - points
    gap = length(source, Norm.L2).clamp(min=_TINY)
    across = row_sum(u.double() * source.double()) / (gap * gap)
    eta = u - per_row(across) * source
    eta = eta * per_row(delta * gap / length(eta, Norm.L2).clamp(min=_TINY))
    sphere = (images + (eta - source) / per_row((1 + delta**2).sqrt())).clamp(0, 1)
    back = length(images - sphere, Norm.L2).clamp(min=_TINY)
    share = (epsilon * gap + back - gap).clamp(min=0) / back
    return sphere, (sphere + per_row(share) * (images - sphere)).clamp(0, 1)
