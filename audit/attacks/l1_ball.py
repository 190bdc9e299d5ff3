"""The L1 ball cut by the pixel range: its nearest points, its vertices, and sparse directions.

Sums over pixels go through `row_sum`, a fixed tree of elementwise additions: library reductions may pick another order for
another number of rows, and a row's result must not depend on its neighbours.
"""

from __future__ import annotations

import torch

# The projection ends within this share of the budget, which is about the rounding of a float32 sum.
_RELATIVE_GAP = 1e-6
_MOST_ROUNDS = 40
_FEW_PIXELS = 128


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
    """The nearest images (Euclidean) to `points` (n, c, h, w) within [0, 1] and L1 distance epsilon, one or (n,), of `images`.

    The change is min(max(|d| - t, 0), room), d = z - x, with the smallest threshold t >= 0 per row that keeps the sum within
    epsilon. The sum is piecewise linear in t: Newton's step, or the middle of the bracket where that leaves it.
    """
    delta, x = (points - images).flatten(1), images.flatten(1)
    size, room = delta.abs(), torch.where(delta > 0, 1 - x, x)
    goal = torch.as_tensor(epsilon, dtype=size.dtype, device=x.device).expand(len(x))[:, None] * (1 - 2 * _RELATIVE_GAP)
    below, above = size.new_zeros(len(x), 1), size.amax(dim=1, keepdim=True)
    threshold = below
    for _ in range(_MOST_ROUNDS):
        rest = size - threshold
        used = row_sum(torch.minimum(rest.clamp(min=0), room))[:, None]
        excess = used - goal
        # Below 0 the threshold may fall, unless it is 0 already; a row that has arrived stays where it is.
        open_rows = torch.where(threshold > 0, excess.abs(), excess) > _RELATIVE_GAP * goal
        if not bool(open_rows.any()):
            break
        below, above = torch.where(excess > 0, threshold, below), torch.where(excess > 0, above, threshold)
        moving = row_sum(((rest > 0) & (rest < room)).to(size.dtype))[:, None]
        step = threshold + excess / moving.clamp(min=1)
        step = torch.where((step > below) & (step < above) & (moving > 0), step, (below + above) / 2)
        threshold = torch.where(open_rows, step, threshold)
    change = delta.sign() * torch.minimum((size - threshold).clamp(min=0), room)
    return (x + change).to(images.dtype).clamp(0, 1).view_as(images)


def greedy_vertex(images: torch.Tensor, direction: torch.Tensor, epsilon: float | torch.Tensor) -> torch.Tensor:
    """The maximiser of <direction, x' - x> in [0, 1] and the L1 ball of epsilon, one or (n,): the largest components are filled up.

    `direction` (n, c, h, w) must have no component that leaves [0, 1] at `images`.
    """
    slope, x = direction.flatten(1), images.flatten(1)
    room = torch.where(slope > 0, 1 - x, torch.where(slope < 0, x, torch.zeros_like(x)))
    budget = torch.as_tensor(epsilon, dtype=x.dtype, device=x.device).expand(len(x))
    pixels = slope.shape[1]
    change = torch.zeros_like(x)
    # Most vertices change few pixels: order these first, and all of them only in the rows where they do not use up epsilon.
    rows = torch.arange(len(x), device=x.device)
    for count in (min(_FEW_PIXELS, pixels), pixels):
        largest = slope[rows].abs().topk(count, dim=1).indices
        filled = room[rows].gather(1, largest)
        before = filled.cumsum(dim=1) - filled
        used = torch.minimum(filled, (budget[rows, None] - before).clamp(min=0))
        change[rows] = torch.zeros_like(change[rows]).scatter(1, largest, used)
        rows = rows[before[:, -1] + filled[:, -1] < budget[rows]]
        if not len(rows) or count == pixels:
            break
    return (x + change * slope.sign()).clamp(0, 1).view_as(images)


def sparse_sign(direction: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Equal steps of total L1 length 1 along the largest components of `direction` (n, ...): a `share` (n,) of them, at least one.

    Equal components at the threshold all take part; a row of zeros stays zero.
    """
    size = direction.abs().flatten(1)
    count = (share * size.shape[1]).long().clamp(1, size.shape[1])
    threshold = size.topk(int(count.max()), dim=1).values.gather(1, (count - 1)[:, None]) if len(size) else size[:, :1]
    chosen = torch.where((size >= threshold) & (size > 0), direction.flatten(1).sign(), torch.zeros_like(size))
    return (chosen / row_sum(chosen.abs())[:, None].clamp(min=1)).view_as(direction)
