"""Minimum-norm attacks: how near the nearest image is that the model gets wrong.

They search without a budget and keep the nearest adversarial image met. As with every attack, the harness believes only what
it has clipped, measured in float64 and asked the model about (`minimal`); `within` makes a stage of a cascade of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import torch

from audit.attacks.ball import distance, length
from audit.attacks.losses import Loss, logit_margin, margin, margin_targeted
from audit.attacks.run import Batch, Oracle, misclassified
from audit.evidence import Bools, Floats
from audit.vocabulary import Norm, Threat

DUAL = {Norm.LINF: Norm.L1, Norm.L2: Norm.L2, Norm.L1: Norm.LINF}
# The linearised distance is at least this share of the largest there is.
_LEAST_SHARE = 1e-6
# Smallest divisor that float32 holds with room to spare.
_TINY = 1e-30


class Goal(StrEnum):
    """Which class the search heads for, and which answer counts."""

    ERROR = "any error"
    ERROR_BY_TARGET = "any error, heading for the target"
    TARGET = "the target"

    def reached(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Whether `logits` (n, K) are what is wanted of the examples of `batch`, (n,); False for a row that was not answered."""
        if self is Goal.TARGET:
            return (logits.argmax(dim=1) == batch.targets) & ~logits.isnan().any(dim=1)
        return misclassified(logits, batch.labels)

    @property
    def loss(self) -> Loss:
        """Rises towards the goal and is positive behind the boundary that the search heads for."""
        return {Goal.ERROR: logit_margin, Goal.ERROR_BY_TARGET: margin_targeted, Goal.TARGET: _margin_of_target}[self]


def _margin_of_target(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """z_t minus the largest other logit."""
    return -margin(logits, targets)


class MinimumNorm(Protocol):
    """Proposes per example the nearest image (n, c, h, w) it met that reaches the goal; the clean image where it met none.

    A row is given up, with what it has, once it has one within `enough` of the clean image.
    """

    def __call__(self, oracle: Oracle, batch: Batch, norm: Norm, *, goal: Goal = Goal.ERROR, enough: float = 0.0) -> torch.Tensor:
        """Propose."""


class Nearest:
    """Per example, the nearest image met that reaches the goal: `images` (n, c, h, w) and `distance` (n,) float64.

    The clean image, at infinity, until there was one.
    """

    def __init__(self, batch: Batch, norm: Norm, goal: Goal, enough: float) -> None:
        self.images = batch.images.clone()
        self.distance = torch.full((len(batch),), torch.inf, dtype=torch.float64, device=batch.images.device)
        self._clean, self._norm, self._goal, self._enough = batch.images, norm, goal, enough

    def note(self, rows: torch.Tensor, points: torch.Tensor, logits: torch.Tensor, live: Batch) -> torch.Tensor:
        """Take in `points` (m, c, h, w) of the examples `live`, which are `rows` (m,) here; which of them reach the goal, (m,)."""
        reached = self._goal.reached(logits, live)
        away = distance(points, self._clean[rows], self._norm)
        nearer = reached & (away < self.distance[rows])
        self.images[rows[nearer]] = points[nearer]
        self.distance[rows[nearer]] = away[nearer]
        return reached

    def open(self, rows: torch.Tensor, logits: torch.Tensor, moved: torch.Tensor | None = None) -> torch.Tensor:
        """Positions in `rows` (m,) to go on with: answered, by `logits` (m, K), and with nothing near enough yet.

        `moved` (m, c, h, w) is what the search moves by: a row of zeros means that it has nowhere to go.
        """
        kept = ~logits.isnan().any(dim=1) & (self.distance[rows] > self._enough)
        if moved is not None:
            kept &= moved.flatten(1).any(dim=1)
        return kept.nonzero()[:, 0]


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Each row of (n, c, h, w) at Euclidean length 1; a row of zeros stays so."""
    return rows / length(rows, Norm.L2).clamp(min=_TINY).to(rows.dtype)[:, None, None, None]


def linear_distance(gap: torch.Tensor, gradient: torch.Tensor, norm: Norm) -> torch.Tensor:
    """How far the linearised boundary is, (n,) float64: |gap| / (dual norm of the gradient (n, c, h, w)).

    At least a trifle, since on the boundary itself logits tie and the label may win, and at most the diameter of [0, 1]^d.
    """
    size = gradient[:1].numel()
    most = {Norm.LINF: 1.0, Norm.L2: size**0.5, Norm.L1: float(size)}[norm]
    away = gap.double().abs() / length(gradient, DUAL[norm]).clamp(min=_TINY)
    return away.nan_to_num(nan=most).clamp(_LEAST_SHARE * most, most)


def in_radius(delta: torch.Tensor, radius: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The nearest changes to `delta` (n, c, h, w) of Linf or L2 norm at most `radius` (n,), whatever the range of pixels."""
    bound = radius.to(delta.dtype)[:, None, None, None]
    if norm is Norm.LINF:
        return torch.minimum(torch.maximum(delta, -bound), bound)
    return delta * (bound / length(delta, norm).clamp(min=_TINY).to(delta.dtype)[:, None, None, None]).clamp(max=1)


def close_in(oracle: Oracle, batch: Batch, nearest: Nearest, *, overshoot: float, rounds: int) -> None:
    """Halve the last part of the way from each clean image to its nearest image, a share `overshoot` of it, `rounds` times.

    What linearised attacks step beyond the boundary, on purpose, is taken back: one forward pass a round.
    """
    alive = (nearest.distance.isfinite() & (nearest.distance > 0)).nonzero()[:, 0]
    live = batch.take(alive)
    way = nearest.images[alive] - live.images
    good, bad = torch.ones(len(live), device=way.device), torch.full((len(live),), 1 - overshoot, device=way.device)
    for _ in range(rounds if len(live) else 0):
        share = (good + bad) / 2
        points = (live.images + share[:, None, None, None] * way).clamp(0, 1)
        reached = nearest.note(alive, points, oracle.logits(live, points), live)
        good, bad = torch.where(reached, share, good), torch.where(reached, bad, share)


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """What a minimum-norm attack is believed to have found: `images` (n, c, h, w) in [0, 1], `found` (n,), `distance` (n,).

    Distances are float64, in the norm; where nothing was found the image is the clean one and the distance infinite.
    """

    images: torch.Tensor
    found: Bools
    distance: Floats


def minimal(
    oracle: Oracle, batch: Batch, clean_logits: torch.Tensor, attack: MinimumNorm, norm: Norm, *, goal: Goal = Goal.ERROR
) -> Minimal:
    """Run `attack` on a batch, clip what it proposes, and ask the model again.

    An example whose `clean_logits` (n, K) reach the goal already is its own nearest image, at distance 0, and costs no pass.
    """
    images, away = batch.images.clone(), torch.full((len(batch),), torch.inf, dtype=torch.float64)
    at_once = goal.reached(clean_logits, batch)
    away[at_once.cpu()] = 0.0
    rest = (~at_once).nonzero()[:, 0]
    if len(rest):
        part = batch.take(rest)
        proposals = attack(oracle, part, norm, goal=goal)
        finite = proposals.isfinite().flatten(1).all(dim=1)
        points = torch.where(finite[:, None, None, None], proposals, part.images).clamp(0, 1)
        reached = goal.reached(oracle.logits(part, points), part)
        images[rest[reached]] = points[reached]
        away[rest[reached].cpu()] = distance(points, part.images, norm)[reached].cpu()
    return Minimal(images=images, found=np.isfinite(away.numpy()), distance=away.numpy())


def within(attack: MinimumNorm, *, aimed: bool) -> Callable[[Oracle, Batch, Threat], torch.Tensor]:
    """A stage of a cascade: an example is dropped once it has an adversarial image inside the ball.

    What lies farther away is no answer within the threat: the clean image is proposed in its place. An `aimed` search heads for
    the batch's targets; any wrong class counts all the same.
    """
    goal = Goal.ERROR_BY_TARGET if aimed else Goal.ERROR

    def propose(oracle: Oracle, batch: Batch, threat: Threat) -> torch.Tensor:
        if threat.epsilon == 0 or not len(batch):
            return batch.images.clone()
        return inside(batch, attack(oracle, batch, threat.norm, goal=goal, enough=threat.epsilon), threat)

    return propose


def inside(batch: Batch, images: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The `images` (n, c, h, w) that lie inside the ball of `threat`, the clean image in place of each of the others."""
    near = distance(images, batch.images, threat.norm) <= threat.epsilon
    return torch.where(near[:, None, None, None], images, batch.images)
