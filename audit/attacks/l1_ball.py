"""The L1 ball cut by the pixel range: its nearest points, its vertices, and sparse directions.

Sums over pixels go through `row_sum`, a fixed tree of elementwise additions: library reductions may pick another order for
another number of rows, and a row's result must not depend on its neighbours.
"""

from __future__ import annotations

import torch

# Share of epsilon that may be used: many changed pixels rounded to float32 must not add up to more.
_ROUNDED = 1 - 1e-6


def row_sum(values: torch.Tensor) -> torch.Tensor:
    """Sum of each row of (n, ...), as (n,), by pairwise halving.

    >>> row_sum(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
    [6.0]
    """
    flat = values.flatten(1)
    while (width := flat.shape[1]) > 1:
        half = width // 2
        paired = flat[:, :half] + flat[:, half : 2 * half]
        flat = paired if width % 2 == 0 else torch.cat([paired, flat[:, -1:]], dim=1)
    return flat[:, 0]


def nearest_l1(images: torch.Tensor, points: torch.Tensor, epsilon: float | torch.Tensor) -> torch.Tensor:
    """The nearest images (Euclidean) to `points` (n, c, h, w) within [0, 1] and L1 distance epsilon of `images`.

    The change is min(max(|d| - t, 0), room), d = z - x, with the smallest threshold t >= 0 per row that keeps the sum within
    epsilon. That sum is linear in t between the values |d| and |d| - room, so that sorting them gives t. `epsilon` is one for all,
    or one per row, (n,) float64.
    """
    delta = (points.double() - images.double()).flatten(1)
    x = images.double().flatten(1)
    budget = torch.as_tensor(epsilon, dtype=torch.float64, device=x.device).expand(len(x))[:, None] * _ROUNDED
    size, room = delta.abs(), torch.where(delta > 0, 1 - x, x)
    bends, order = torch.cat([size, size - room], dim=1).sort(dim=1, descending=True, stable=True)
    signs = torch.where(order < size.shape[1], 1.0, -1.0).to(size)
    slopes, sums = signs.cumsum(dim=1), (signs * bends).cumsum(dim=1)
    # The last bend at which the change still fits; below it the sum grows by the slope there, until the next bend.
    last = ((sums - slopes * bends <= budget).long().sum(dim=1, keepdim=True) - 1).clamp(min=0)
    least = bends.gather(1, (last + 1).clamp(max=bends.shape[1] - 1))
    threshold = torch.maximum((sums.gather(1, last) - budget) / slopes.gather(1, last).clamp(min=1), least).clamp(min=0)
    within = row_sum(torch.minimum(size, room))[:, None] <= budget
    threshold = torch.where(within, torch.zeros_like(threshold), threshold)
    change = delta.sign() * torch.minimum((size - threshold).clamp(min=0), room)
    return (x + change).to(images.dtype).clamp(0, 1).view_as(images)


def greedy_vertex(images: torch.Tensor, direction: torch.Tensor, epsilon: float) -> torch.Tensor:
    """The maximiser of <direction, x' - x> in the L1 ball and [0, 1]: the largest components are filled up until epsilon is used.

    `direction` (n, c, h, w) must have no component that leaves [0, 1] at `images`.
    """
    slope, x = direction.double().flatten(1), images.double().flatten(1)
    room = torch.where(slope > 0, 1 - x, torch.where(slope < 0, x, torch.zeros_like(x)))
    order = slope.abs().argsort(dim=1, descending=True, stable=True)
    filled = room.gather(1, order)
    used = torch.minimum(filled, (epsilon - (filled.cumsum(dim=1) - filled)).clamp(min=0))
    change = torch.zeros_like(x).scatter(1, order, used) * slope.sign()
    return (x + change).to(images.dtype).clamp(0, 1).view_as(images)


def sparse_sign(direction: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Equal steps of total L1 length 1 along the largest components of `direction` (n, ...): a `share` (n,) of them, at least one.

    Equal components at the threshold all take part; a row of zeros stays zero.
    """
    size = direction.abs().flatten(1)
    count = (share * size.shape[1]).long().clamp(1, size.shape[1])
    threshold = size.sort(dim=1, descending=True).values.gather(1, (count - 1)[:, None])
    chosen = torch.where((size >= threshold) & (size > 0), direction.flatten(1).sign(), torch.zeros_like(size))
    return (chosen / row_sum(chosen.abs())[:, None].clamp(min=1)).view_as(direction)
