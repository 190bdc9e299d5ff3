"""Gradients of the margin from queries alone: differences of the scores along random directions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from audit.attacks.losses import margin
from audit.attacks.randomness import Draw, in_parts
from audit.attacks.run import Batch, Oracle


def margins(oracle: Oracle, live: Batch, points: torch.Tensor) -> torch.Tensor:
    """The margins (n, m) of m points (n, m, c, h, w) for each example; NaN where the model gave no answer."""
    logits = oracle.several(live, points)
    count = points.shape[1]
    return margin(logits.flatten(0, 1), live.labels.repeat_interleave(count)).view(-1, count)


def slope(
    oracle: Oracle,
    live: Batch,
    points: torch.Tensor,
    sources: Sequence[torch.Generator],
    *,
    pairs: int,
    width: float,
    draw: Draw,
) -> torch.Tensor:
    """The estimate (n, c, h, w) of the margin's gradient at `points`, from 2 `pairs` queries per example.

    mean over u of u (m(x + s u) - m(x - s u)) / (2 s), s the `width`; both points are clipped to [0, 1]. A pair that was not
    answered counts as level.
    """
    total = torch.zeros_like(points)
    for u in in_parts(sources, pairs, points, draw):
        step, at = width * u, points[:, None]
        reached = margins(oracle, live, torch.cat([(at + step).clamp(0, 1), (at - step).clamp(0, 1)], dim=1))
        up, down = reached[:, : u.shape[1]], reached[:, u.shape[1] :]
        rise = torch.nan_to_num(up - down, nan=0.0, posinf=0.0, neginf=0.0)
        for index in range(u.shape[1]):
            total += rise[:, index].view(-1, 1, 1, 1) * u[:, index]
    return total / (2 * width * pairs)
