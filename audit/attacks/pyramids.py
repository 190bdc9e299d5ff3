"""The moves of the Square attack for L2 and L1: windows of two opposite pyramids that take mass from other windows.

L2 after Andriushchenko et al. 2020 (arXiv 1912.00049, algorithm 3), L1 after Croce & Hein 2021 (arXiv 2103.01208, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from audit.attacks.ball import Ball, length
from audit.attacks.l1_ball import row_sum
from audit.vocabulary import Norm

# Smallest window that holds two pyramids, and the tiles along a side at the start.
_LEAST_SIDE, _TILES = 3, 5
_TINY = 1e-12


@cache
def pyramids(side: int, order: int) -> torch.Tensor:
    """One pyramid up above one pyramid down, (side, side), of p-norm 1 with p the `order`.

    Each is a sum of centred rectangles; ring r weighs r^-2, for L1 r^-4: there the mass must be on few pixels.

    >>> pyramids(1, 1).tolist()
    [[1.0]]
    """
    upper = side // 2
    pair = _rings(side, side, order) if side == 1 else torch.cat([_rings(upper, side, order), -_rings(side - upper, side, order)])
    return pair / _norm(pair, order)


def _norm(values: torch.Tensor, order: int) -> torch.Tensor:
    return row_sum(values.abs()[None] ** order) ** (1 / order)


def _rings(rows: int, columns: int, order: int) -> torch.Tensor:
    """Weights that fall from the middle, (rows, columns), of p-norm 1."""
    found = torch.zeros(rows, columns)
    for ring in range(max(rows, columns) // 2 + 1):
        top, left = rows // 2 - ring, columns // 2 - ring
        across = 2 * ring + 1
        inside = (slice(max(top, 0), max(top + across, 0)), slice(max(left, 0), max(left + across, 0)))
        found[inside] += (ring + 1.0) ** (-2 if order == 2 else -4)
    return found / _norm(found, order)


def tiles(ball: Ball, sources: Sequence[torch.Generator]) -> torch.Tensor:
    """The start (n, c, h, w): pyramids of random sign side by side, five along the shorter side, at the edge of the ball."""
    _, c, h, w = ball.images.shape
    side = max(min(h, w) // _TILES, 1)
    down, right = h // side, w // side
    top, left = (h - down * side) // 2, (w - right * side) // 2
    tile, delta = pyramids(side, _order(ball)).to(ball.images), torch.zeros_like(ball.images)
    signs = torch.stack([torch.rand((c, down, right), generator=source) < 0.5 for source in sources])
    signed = torch.where(signs, -1.0, 1.0).to(ball.images)
    for row in range(down):
        for column in range(right):
            at = (slice(top + row * side, top + (row + 1) * side), slice(left + column * side, left + (column + 1) * side))
            delta[:, :, at[0], at[1]] = signed[:, :, row, column, None, None] * tile
    return _at_the_edge(ball, delta)


def _order(ball: Ball) -> int:
    return 2 if ball.threat.norm is Norm.L2 else 1


def move_mass(ball: Ball, points: torch.Tensor, u: torch.Tensor, side: int) -> torch.Tensor:
    """`points` (n, c, h, w) with the mass of one window, and what the ball has left, moved to another as a pair of pyramids.

    `u` (n, 5 + c) in [0, 1) gives the corners of the target and of the emptied window, the orientation, and a sign per channel.
    """
    n, c, h, w = points.shape
    side = min(max(side, _LEAST_SIDE), h, w)
    delta = points - ball.images
    order = _order(ball)
    gained, lost = _window(u[:, 0:2], side, h, w), _window(u[:, 2:4], side, h, w)
    examples, channels = (
        torch.arange(n, device=points.device)[:, None, None, None],
        torch.arange(c, device=points.device)[:, None, None],
    )
    here = (examples, channels, gained[0][:, None, :, None], gained[1][:, None, None, :])
    there = (examples, channels, lost[0][:, None, :, None], lost[1][:, None, None, :])

    def mass(values: torch.Tensor) -> torch.Tensor:
        """Sum of |.|^p per example and channel, (n, c, 1, 1)."""
        return row_sum((values.abs() ** order).flatten(0, 1)).view(n, c, 1, 1)

    either = torch.zeros_like(delta)
    either[here] = 1
    either[there] = 1
    spare = (ball.threat.epsilon**order - row_sum(delta.abs().double() ** order)).clamp(min=0).to(delta).view(-1, 1, 1, 1)
    pair = pyramids(side, order).to(points)
    shape = torch.where((u[:, 4] < 0.5).view(-1, 1, 1, 1), pair, pair.T)
    sign = torch.where(u[:, 5:] < 0.5, -1.0, 1.0).to(points)[:, :, None, None]
    old = delta[here]
    new = sign * shape + old / (mass(old) ** (1 / order) + _TINY)
    new = new / (mass(new) ** (1 / order) + _TINY) * (mass(delta * either) + spare / c) ** (1 / order)
    delta[there] = 0
    delta[here] = new
    return _at_the_edge(ball, delta)


def _window(u: torch.Tensor, side: int, h: int, w: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and columns (n, side) of a window whose corner is at `u` (n, 2)."""
    top, left = ((u[:, axis] * (size - side + 1)).long().clamp(max=size - side) for axis, size in enumerate((h, w)))
    along = torch.arange(side, device=u.device)
    return top[:, None] + along, left[:, None] + along


def _at_the_edge(ball: Ball, delta: torch.Tensor) -> torch.Tensor:
    """`delta` brought to the length epsilon and [0, 1]; for L1 by the nearest allowed image."""
    size = (ball.threat.epsilon / length(delta, ball.threat.norm).clamp(min=_TINY)).to(delta).view(-1, 1, 1, 1)
    return ball.project(ball.images + (delta if ball.threat.norm is Norm.L1 else delta * size))
