"""The nearest change of label along random directions: empirical boundary distance (Liu et al. 2019; Guo et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Root mean square distances: from a quarter of a grey level up to half the range, each 1.5 times the one before.
FIRST, LAST, POINTS = 1 / 1020, 0.5, 16
# Halvings of the first bracket, after which the distance is known to half a percent.
HALVINGS = 7
# Rounds until the pixels that meet the range are known; each round only adds some, and nearly all come in the first few.
_ROUNDS = 40

# Images (m, c, h, w) -> which of them the model answers with another class than the example's, (m,).
Changed = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Found:
    """The root mean square distance of the nearest change, or, where `censored`, the one up to which there was none."""

    distance: float
    censored: bool
    queries: int


def grid() -> list[float]:
    """The distances that are tried, ascending.

    >>> len(grid()), round(grid()[0] * 1020, 6), grid()[-1]
    (16, 1.0, 0.5)
    """
    ratio = (LAST / FIRST) ** (1 / (POINTS - 1))
    return [*(FIRST * ratio**place for place in range(POINTS - 1)), LAST]


def most_queries(directions: int) -> int:
    """Questions that one example takes at most."""
    return 2 * directions * (POINTS + HALVINGS)


def orthogonal(count: int, dimension: int, source: torch.Generator) -> torch.Tensor:
    """`count` random unit vectors (count, d): orthogonal as far as there is room, then another set of orthogonal ones."""
    sets = []
    for start in range(0, count, dimension):
        drawn = torch.randn(dimension, min(dimension, count - start), generator=source, dtype=torch.float32)
        basis, upper = torch.linalg.qr(drawn)
        # Haar measure wants the signs of R's diagonal.
        sets.append((basis * upper.diagonal().sign()).T)
    return torch.cat(sets)


def nearest_change(image: torch.Tensor, rays: torch.Tensor, changed: Changed) -> Found:
    """Walk all rays outwards together, distance by distance; halve the bracket of the first that changes the answer.

    Distances are those realised after clipping to [0, 1]: pixels of a ray that meet the range stay there, the others go on. A ray
    that ends in a corner before a distance has no point there.

    Args:
        image: (c, h, w) in [0, 1].
        rays: unit vectors (r, c h w), both signs among them.
        changed: what the model says of images on the rays.
    """
    flat = image.flatten().double()
    rays = rays.to(flat)
    room = torch.where(rays > 0, 1 - flat, flat)
    queries = 0

    def ask(distance: float, among: torch.Tensor) -> torch.Tensor:
        """Those of the rays `among` (k,) whose point at `distance` is answered with another class."""
        nonlocal queries
        steps, there = steps_to(distance * math.sqrt(len(flat)), rays[among], room[among])
        among, steps = among[there], steps[there]
        if not len(among):
            return among
        points = (flat + steps[:, None] * rays[among]).clamp(0, 1).to(image.dtype).view(-1, *image.shape)
        queries += len(points)
        hit = changed(points)
        return among[hit]

    every = torch.arange(len(rays), device=flat.device)
    low = 0.0
    for high in grid():
        before = queries
        hit = ask(high, every)
        if len(hit):
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                nearer = ask(middle, hit)
                low, high, hit = (low, middle, nearer) if len(nearer) else (middle, high, hit)
            return Found(distance=high, censored=False, queries=queries)
        if queries == before:
            break  # every ray has ended
        low = high
    return Found(distance=low, censored=True, queries=queries)


def steps_to(length: float, rays: torch.Tensor, room: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How far along unit rays (r, d) the clipped change has this Euclidean `length`, (r,), and which rays get there, (r,).

    Args:
        length: wanted.
        rays: directions.
        room: (r, d) how far each value can move along its ray before it meets the range.

    >>> rays, room = torch.tensor([[0.6, 0.8], [1.0, 0.0]]).double(), torch.tensor([[0.3, 9.0], [0.4, 9.0]]).double()
    >>> steps, there = steps_to(0.5, rays, room)
    >>> round(float(steps[0]), 6), there.tolist()
    (0.5, [True, False])
    """
    slope, square = rays.abs(), rays**2
    steps = torch.full((len(rays),), length, dtype=rays.dtype, device=rays.device)
    there = torch.ones(len(rays), dtype=torch.bool, device=rays.device)
    for _ in range(_ROUNDS):
        held = slope * steps[:, None] >= room
        gone = torch.where(held, room, 0).square().sum(dim=1)
        free = torch.where(held, 0, square).sum(dim=1)
        left = length**2 - gone
        there = (left <= 0) | (free > 1e-12)
        further = torch.where(there & (free > 1e-12), (left.clamp(min=0) / free.clamp(min=1e-12)).sqrt(), steps)
        further = torch.maximum(further, steps)
        if bool((further <= steps * (1 + 1e-12)).all()):
            break
        steps = further
    return steps, there
