"""The set of images a threat allows around each clean image: its ball, cut by the pixel range [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from audit.attacks.l1_ball import greedy_vertex, nearest_l1, row_sum, sparse_sign
from audit.vocabulary import Norm, Threat

# Smallest positive divisor: keeps 0 / 0 at 0.
_TINY = 1e-30
_MAX_ROUNDS = 12
_RELATIVE_GAP = 1e-4
# What the rounding of float32 sums may add to a length.
_INSIDE = 1e-6
# Unit vectors are lengthened by at most this factor: pixels that would need more have no part in the direction.
_MOST_STRETCH = 1e6
_L1_SHARE = 0.05


def distance(first: torch.Tensor, second: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Distance of each row of `first` (n, ...) from the same row of `second`, (n,) float64, measured in float64."""
    return length(first.double() - second.double(), norm)


def length(rows: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The norm of each row of (n, ...), as (n,) float64."""
    size = rows.double().abs()
    if norm is Norm.LINF:
        return size.flatten(1).amax(dim=1)
    return row_sum(size * size).sqrt() if norm is Norm.L2 else row_sum(size)


def _per_row(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(-1, *[1] * (like.ndim - 1))


@dataclass(frozen=True, kw_only=True)
class Ball:
    """The allowed images around `images` (n, c, h, w). `low` and `high` bound each pixel, rounded inwards to float32."""

    images: torch.Tensor
    threat: Threat
    low: torch.Tensor
    high: torch.Tensor

    @classmethod
    def around(cls, images: torch.Tensor, threat: Threat) -> Ball:
        """The ball of `threat` around each of `images`."""
        if threat.norm is not Norm.LINF:
            return cls(images=images, threat=threat, low=torch.zeros_like(images), high=torch.ones_like(images))
        epsilon, exact = threat.epsilon, images.double()
        low = (exact - epsilon).clamp(min=0).to(images.dtype)
        high = (exact + epsilon).clamp(max=1).to(images.dtype)
        # The nearest float32 may lie outside by half a unit in the last place.
        low = torch.where(exact - low.double() > epsilon, torch.nextafter(low, images), low)
        high = torch.where(high.double() - exact > epsilon, torch.nextafter(high, images), high)
        return cls(images=images, threat=threat, low=low, high=high)

    def take(self, index: torch.Tensor) -> Ball:
        """The same for some of the rows."""
        return Ball(images=self.images[index], threat=self.threat, low=self.low[index], high=self.high[index])

    def project(self, points: torch.Tensor) -> torch.Tensor:
        """The nearest allowed images to `points` (n, c, h, w), exact for every norm up to rounding.

        For L2 the nearest point is clip(x + s (z - x)) with the largest s <= 1 that stays in the ball.
        """
        if self.threat.norm is Norm.LINF:
            return torch.minimum(torch.maximum(points, self.low), self.high)
        if self.threat.norm is Norm.L1:
            return nearest_l1(self.images, points, self.threat.epsilon)
        delta = points - self.images
        return self._along(delta, self._reach(delta, most=1))

    def _along(self, delta: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (self.images + _per_row(scale, delta) * delta).clamp(0, 1)

    def _reach(self, delta: torch.Tensor, most: float) -> torch.Tensor:
        """The largest s <= `most` per row, (n,), that keeps clip(x + s d) in the L2 ball.

        The squared length is s^2 A + B, A summed over the pixels that move and B over those at the edge of the range. With the
        edge found so far it is an upper bound, so each round ends inside the ball and the rounds only grow.
        """
        size = delta.abs()
        room = torch.where(delta > 0, 1 - self.images, self.images)
        squared, room_squared = size * size, room * room
        zero, goal = torch.zeros_like(size), self.threat.epsilon * (1 - _INSIDE)
        scale = (goal / row_sum(squared).sqrt().clamp(min=_TINY)).clamp(max=most)
        for _ in range(_MAX_ROUNDS):
            moving = size * _per_row(scale, size) < room
            slope = row_sum(torch.where(moving, squared, zero))
            rest = (goal**2 - row_sum(torch.where(moving, zero, room_squared))).clamp(min=0)
            longer = (rest / slope.clamp(min=_TINY)).sqrt().clamp(max=most)
            grows = (longer > scale * (1 + _RELATIVE_GAP)) & (slope > 0)
            if not bool(grows.any()):
                break
            scale = torch.where(grows, longer, scale)
        return scale

    def confine(self, points: torch.Tensor) -> torch.Tensor:
        """Like `project`, but inside the ball and [0, 1] also when measured in float64; falls back to the clean image."""
        confined = self.project(points)
        if self.threat.norm is Norm.LINF:
            return confined
        shrink = 1e-6
        while shrink < 1:
            over = distance(confined, self.images, self.threat.norm) > self.threat.epsilon
            if not bool(over.any()):
                return confined
            smaller = (self.images + (1 - shrink) * (confined - self.images)).clamp(0, 1)
            confined = torch.where(_per_row(over, confined), smaller, confined)
            shrink *= 4
        over = distance(confined, self.images, self.threat.norm) > self.threat.epsilon
        return torch.where(_per_row(over, confined), self.images, confined)

    def steepest(self, points: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The direction of unit norm in which the loss rises fastest: the sign for Linf, the normalised gradient for L2.

        For L1 it spreads over the largest 5 % of the components, since one component at a time needs as many steps as pixels. For
        L2 and L1, components that would leave [0, 1] are dropped first: they cost length and change nothing.
        """
        if self.threat.norm is Norm.LINF:
            return gradient.sign()
        useful = useful_part(points, gradient)
        if self.threat.norm is Norm.L1:
            return sparse_sign(useful, torch.full((len(useful),), _L1_SHARE, device=useful.device))
        return _unit(useful)

    def farthest(self, direction: torch.Tensor) -> torch.Tensor:
        """The allowed image that goes farthest along `direction` (n, c, h, w): the maximiser of a linear loss; x where it is 0."""
        if self.threat.norm is Norm.LINF:
            return torch.where(direction > 0, self.high, torch.where(direction < 0, self.low, self.images))
        useful = useful_part(self.images, direction)
        if self.threat.norm is Norm.L1:
            return greedy_vertex(self.images, useful, self.threat.epsilon)
        # Pixels that reach the range stop there; the others take over their share of the length.
        unit = _unit(useful)
        return self._along(unit, self._reach(unit, most=_MOST_STRETCH))

    def random_points(self, generators: Sequence[torch.Generator], *, on_edge: bool = False) -> torch.Tensor:
        """One random allowed image per row: uniform in the ball, or on its edge (Linf corners, L2 or L1 sphere), then clipped."""
        shape, epsilon = self.images.shape[1:], self.threat.epsilon
        deltas = []
        for source in generators:
            if self.threat.norm is Norm.LINF:
                unit = 2 * torch.rand(shape, generator=source) - 1
                deltas.append(torch.where(unit < 0, -epsilon, epsilon) if on_edge else epsilon * unit)
                continue
            radius = 1.0 if on_edge else float(torch.rand((), generator=source)) ** (1 / shape.numel())
            if self.threat.norm is Norm.L2:
                direction = torch.randn(shape, generator=source)
            else:
                signs = torch.where(torch.rand(shape, generator=source) < 0.5, -1.0, 1.0)
                direction = signs * torch.empty(shape).exponential_(generator=source)
            deltas.append(direction * (epsilon * radius / max(float(length(direction[None], self.threat.norm)), _TINY)))
        if not deltas:
            return self.images.clone()
        return self.project(self.images + torch.stack(deltas).to(self.images))


def _unit(direction: torch.Tensor) -> torch.Tensor:
    """`direction` (n, c, h, w) at L2 length 1; zeros stay zero. Divided by its largest value first: tiny squares would vanish."""
    largest = direction.abs().flatten(1).amax(dim=1)
    scaled = direction / _per_row(torch.where(largest > 0, largest, torch.ones_like(largest)), direction)
    return scaled / _per_row(row_sum(scaled * scaled).sqrt().clamp(min=_TINY), scaled)


def useful_part(points: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """`direction` without the components that would leave [0, 1] at `points`."""
    wasted = ((points <= 0) & (direction < 0)) | ((points >= 1) & (direction > 0))
    return torch.where(wasted, torch.zeros_like(direction), direction)
