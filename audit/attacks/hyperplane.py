"""Linearised boundaries: which is nearest, and the shortest change that reaches it (Croce & Hein 2020, section 3).

Sums over pixels go through `row_sum`, so that a row's result does not depend on its neighbours.
"""

from __future__ import annotations

import torch

from audit.attacks.ball import length
from audit.attacks.l1_ball import row_sum
from audit.attacks.minimal import DUAL, Goal, Nearest
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Norm

# The threshold is found in a handful of rounds; every round fixes at least one more pixel at the range.
_MOST_ROUNDS = 60
_TINY = 1e-300
# How far behind a boundary to aim, as a share of the spread of the logits.
_BEYOND = 1e-5
# The classes a step may head for: those of largest logit on the clean image, as in DeepFool's own code.
CANDIDATES = 9
# Gradients of all candidate classes are held for this many examples at a time.
_ROWS_AT_ONCE = 32


def smallest_change(points: torch.Tensor, slope: torch.Tensor, gain: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The change d (n, c, h, w), float64, of smallest norm with <slope, d> = gain and 0 <= points + d <= 1.

    A pixel can change by `room` in the useful direction. The solution is d = min(s u, room) with u = 1 for Linf and u = |slope|
    for L2; for L1 the pixels of largest slope are used up one after the other. Where the range does not allow the gain, or the
    slope is zero, the change goes as far as it can.

    Args:
        points: (n, c, h, w) in [0, 1].
        slope: (n, c, h, w), the gradient of a linear function.
        gain: (n,), what the function is to change by, of either sign.
        norm: any.
    """
    toward = torch.where(gain < 0, -1.0, 1.0).double()[:, None]
    w = slope.double().flatten(1) * toward
    x, size = points.double().flatten(1), w.abs()
    room = torch.where(w > 0, 1 - x, torch.where(w < 0, x, torch.zeros_like(x)))
    change = _greedy(size, room, gain.double().abs()) if norm is Norm.L1 else _filled(size, room, gain.double().abs(), norm)
    return (w.sign() * change).view_as(points)


def shortest_change(slope: torch.Tensor, gain: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The change d (n, c, h, w), float64, of smallest Linf or L2 norm with <slope, d> = gain, whatever the range of pixels."""
    w = slope.double()
    direction = w.sign() if norm is Norm.LINF else w
    return (gain.double() / row_sum(w * direction).clamp(min=_TINY))[:, None, None, None] * direction


def _filled(size: torch.Tensor, room: torch.Tensor, gain: torch.Tensor, norm: Norm) -> torch.Tensor:
    """min(s u, room) with sum(size min(s u, room)) = gain, by Newton's method: exact, as the sum is concave, piecewise linear."""
    u = torch.ones_like(size) if norm is Norm.LINF else size
    free = (room > 0) & (size > 0)
    s = torch.zeros_like(gain)
    for _ in range(_MOST_ROUNDS):
        fixed = row_sum(torch.where(free, torch.zeros_like(size), size * room))
        rate = row_sum(torch.where(free, size * u, torch.zeros_like(size)))
        # No pixel is free any more: everything goes to the range.
        s = torch.where(rate > 0, ((gain - fixed) / rate.clamp(min=_TINY)).clamp(min=0), torch.inf)
        still = free & (s[:, None] * u < room)
        if bool((still == free).all()):
            break
        free = still
    return torch.where(free, s[:, None] * u, room)


def _greedy(size: torch.Tensor, room: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Pixels in the order of `size`, each used up to its room, until `gain` is reached."""
    order = size.argsort(dim=1, descending=True, stable=True)
    most = (size * room).gather(1, order)
    share = torch.minimum(most, (gain[:, None] - (most.cumsum(dim=1) - most)).clamp(min=0))
    return torch.zeros_like(size).scatter(1, order, share) / size.clamp(min=_TINY)


def first_look(oracle: Oracle, batch: Batch, nearest: Nearest) -> tuple[torch.Tensor, torch.Tensor]:
    """Ask about the clean images: the rows (m,) left to search, and the classes (m, at most 9) each may head for."""
    logits = oracle.logits(batch, batch.images)
    rows = torch.arange(len(batch), device=logits.device)
    nearest.note(rows, batch.images, logits, batch)
    kept = nearest.open(rows, logits)
    return kept, strongest_rivals(logits, batch.labels, CANDIDATES)[kept]


def strongest_rivals(logits: torch.Tensor, labels: torch.Tensor, most: int) -> torch.Tensor:
    """The wrong classes of largest logit, (n, min(most, K - 1)), the largest first."""
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.sort(dim=1, descending=True, stable=True).indices[:, : min(most, logits.shape[1] - 1)]


def nearest_boundary(
    oracle: Oracle, batch: Batch, points: torch.Tensor, rivals: torch.Tensor, norm: Norm, goal: Goal
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (n, K), f (n,) and w (n, c, h, w) of the linearised boundary f + <w, z - x> = 0 that lies nearest to `points`.

    Of the boundaries between the label and each of `rivals` (n, m), the one that is nearest where pixels have no range; a goal
    that heads for a target has one boundary, at the cost of one gradient. f is lowered by a trifle of the logits' spread, since on
    the boundary itself logits tie and the label may win.
    """
    if goal is not Goal.ERROR:
        logits, w = oracle.gradient(batch, points, goal.loss)
        return logits, goal.loss(logits, batch.labels, batch.targets) - _trifle(logits), w
    parts = []
    for start in range(0, len(batch), _ROWS_AT_ONCE):
        index = torch.arange(start, min(start + _ROWS_AT_ONCE, len(batch)), device=points.device)
        some, x = batch.take(index), points[index]
        classes = torch.cat([some.labels[:, None], rivals[index]], dim=1)
        logits, gradients = oracle.class_gradients(some, x, classes)
        w = gradients[:, 1:] - gradients[:, :1]
        z = logits.gather(1, classes)
        f = z[:, 1:] - z[:, :1]
        best = _shortest_way(f, w, norm)
        rows = torch.arange(len(x), device=x.device)
        parts.append((logits, f[rows, best], w[rows, best]))
    logits, f, w = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, f - _trifle(logits), w


def _trifle(logits: torch.Tensor) -> torch.Tensor:
    return _BEYOND * (0.1 + logits.amax(dim=1) - logits.amin(dim=1))


def _shortest_way(f: torch.Tensor, w: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The place of the boundary with the smallest |f| / (dual norm of w), (n,), of m boundaries: f (n, m), w (n, m, c, h, w)."""
    slope = length(w.flatten(0, 1), DUAL[norm]).view_as(f)
    return torch.where(slope > 0, f.double().abs() / slope.clamp(min=_TINY), torch.inf).argmin(dim=1)
