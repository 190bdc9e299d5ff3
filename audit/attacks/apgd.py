"""Auto-PGD, gradient ascent that halves its own steps (Croce & Hein 2020, arXiv 2003.01690; L1: 2021, arXiv 2103.01208).

Differs from the papers in: the last point is only asked and not differentiated (n gradients instead of n + 1); L2 projects on
the ball cut by the pixel range itself, where theirs projects on the ball and then clips.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum, sparse_sign
from audit.attacks.losses import LOSSES, Loss
from audit.attacks.run import Batch, Oracle
from audit.attacks.starts import start_points
from audit.attacks.strongest import Strongest
from audit.vocabulary import Norm, Threat

# Share of a window's steps that must have raised the loss (rho), and weight of the step against the momentum (alpha).
_RISING = 0.75
_MOMENTUM = 0.75
# L1: a check every 4 % of the steps; the share of components of the first step; the smallest step and its divisor.
_SPARSE_CHECK = 0.04
_FIRST_SHARE = 0.2
_SPARSE_SHRINK = 1.5
_SMALLEST_STEP = 0.1
# Balls the L1 search goes through when it starts outside, as shares of the first radius beyond epsilon, and their share of steps.
_DESCENT = ((1.0, 0.3), (0.5, 0.3), (0.0, 0.4))


def apgd(
    oracle: Oracle,
    batch: Batch,
    threat: Threat,
    *,
    loss: str,
    steps: int,
    start: str,
    seed: int,
    purpose: str,
    stop_early: bool,
    radius: float = 0,
) -> torch.Tensor:
    """The strongest iterate by margin, (n, c, h, w).

    Args:
        oracle: the model.
        batch: clean images, labels, and the targets of a targeted loss.
        threat: any norm.
        loss: a key of `LOSSES`, maximised.
        steps: gradient steps; the last iterate costs one more forward pass.
        start: one of `starts.STARTS`.
        seed: of the audit.
        purpose: names the random start; another name gives another start.
        stop_early: drop an example at its first misclassified iterate (the cascade); otherwise spend the full budget on each.
        radius: above 1, the ascent begins in the ball of that many epsilon and goes on in smaller ones, the last the threat's own
            (the L1 paper's schedule, at 3); only iterates of the last count.
    """
    if threat.epsilon == 0 or not len(batch) or steps < 1:
        return batch.images.clone()
    descent = _DESCENT if radius > 1 else ((0.0, 1.0),)
    points: torch.Tensor | None = None
    left = steps
    for beyond, share in descent:
        ball = Ball.around(batch.images, threat.at((1 + beyond * (radius - 1)) * threat.epsilon) if beyond else threat)
        points = start_points(start, ball, batch, seed, purpose) if points is None else ball.project(points)
        here = left if beyond == 0 else min(left, math.ceil(share * steps))
        left -= here
        climb = Climb(batch, ball, points, LOSSES[loss])
        climb.run(oracle, here, stop_early=stop_early and beyond == 0)
        points = climb.highest
    return climb.found.images


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """What the ascent knows of each example still in it: images (n, c, h, w), numbers (n,), `share` and `changed` for L1 only."""

    points: torch.Tensor
    previous: torch.Tensor
    gradient: torch.Tensor
    best: torch.Tensor
    best_gradient: torch.Tensor
    best_loss: torch.Tensor
    last_loss: torch.Tensor
    checked_loss: torch.Tensor
    rises: torch.Tensor
    halved: torch.Tensor
    step: torch.Tensor
    share: torch.Tensor
    changed: torch.Tensor

    def take(self, index: torch.Tensor) -> _Rows:
        return _Rows(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


class Climb:
    """One ascent in one ball: `found` holds the strongest iterates by margin, `highest` (n, c, h, w) those of highest loss."""

    def __init__(self, batch: Batch, ball: Ball, points: torch.Tensor, loss: Loss) -> None:
        self.found = Strongest(batch)
        self.highest = points.clone()
        self._batch, self._ball, self._loss = batch, ball, loss
        self._l1 = ball.threat.norm is Norm.L1
        self._alive = torch.arange(len(batch), device=points.device)
        number = torch.zeros(len(batch), device=points.device)
        changed = _changed(points, ball)
        pixels = points[0].numel()
        self._rows = _Rows(
            points=points,
            previous=points,
            gradient=torch.zeros_like(points),
            best=points,
            best_gradient=torch.zeros_like(points),
            best_loss=number - torch.inf,
            last_loss=number + torch.inf,
            checked_loss=number - torch.inf,
            rises=number,
            halved=number == 0,
            step=number + (1 if self._l1 else 2) * ball.threat.epsilon,
            share=torch.where(changed > 0, (changed / pixels / _SPARSE_SHRINK).clamp(min=1 / pixels), number + _FIRST_SHARE),
            changed=changed.clamp(min=1),
        )

    def run(self, oracle: Oracle, steps: int, *, stop_early: bool) -> None:
        """Take `steps` gradient steps and look at where they end."""
        checks = _sparse_checks(steps) if self._l1 else checkpoints(steps)
        checked = 0
        for taken in range(steps):
            points = self._rows.points
            logits, losses, gradient = oracle.loss_gradient(self._batch, points, self._loss)
            if not self._keep(points, logits, losses, gradient, stop_early):
                return
            if taken in checks:
                self._rows = self._sparser() if self._l1 else self._halved(taken - checked)
                checked = taken
            moved = self._sparse_step() if self._l1 else self._step(first=taken == 0)
            self._rows = replace(self._rows, points=moved, previous=self._rows.points)
        self.found.note(self._alive, self._rows.points, oracle.logits(self._batch, self._rows.points), self._batch)
        self.highest[self._alive] = self._rows.best

    def _keep(
        self, points: torch.Tensor, logits: torch.Tensor, losses: torch.Tensor, gradient: torch.Tensor, stop_early: bool
    ) -> bool:
        """Take in an iterate and drop the rows that are done; whether any is left."""
        broken = self.found.note(self._alive, points, logits, self._batch)
        rows = self._rows
        up = losses > rows.best_loss
        image_up = up.view(-1, 1, 1, 1)
        self._rows = replace(
            rows,
            gradient=gradient,
            best=torch.where(image_up, points, rows.best),
            best_gradient=torch.where(image_up, gradient, rows.best_gradient),
            best_loss=torch.where(up, losses, rows.best_loss),
            rises=rows.rises + (losses > rows.last_loss),
            last_loss=losses,
        )
        keep = ~logits.isnan().any(dim=1)
        if stop_early:
            keep &= ~broken
        if not bool(keep.all()):
            kept = keep.nonzero()[:, 0]
            dropped = (~keep).nonzero()[:, 0]
            self.highest[self._alive[dropped]] = self._rows.best[dropped]
            self._alive, self._rows = self._alive[kept], self._rows.take(kept)
            self._batch, self._ball = self._batch.take(kept), self._ball.take(kept)
        return bool(len(self._batch))

    def _halved(self, window: int) -> _Rows:
        """Halve the steps that stopped paying and go back to the best point.

        That is where fewer than 75 % of the window's steps rose, or nothing was gained since a check that did not halve.
        """
        rows = self._rows
        halve = (rows.rises < _RISING * window) | (~rows.halved & (rows.checked_loss >= rows.best_loss))
        return _back(
            replace(
                rows,
                step=torch.where(halve, rows.step / 2, rows.step),
                halved=halve,
                checked_loss=rows.best_loss,
                rises=torch.zeros_like(rows.rises),
            ),
            halve,
        )

    def _sparser(self) -> _Rows:
        """L1: go back to the best point with full steps where it has become sparser, else shrink the step."""
        rows, epsilon = self._rows, self._ball.threat.epsilon
        changed = _changed(rows.best, self._ball)
        sparser = changed / rows.changed < 0.95
        pixels = rows.points[0].numel()
        return _back(
            replace(
                rows,
                share=(changed / pixels / _SPARSE_SHRINK).clamp(min=1 / pixels),
                step=torch.where(sparser, torch.full_like(rows.step, epsilon), rows.step / _SPARSE_SHRINK).clamp(
                    min=_SMALLEST_STEP * epsilon
                ),
                changed=changed.clamp(min=1),
            ),
            sparser,
        )

    def _step(self, *, first: bool) -> torch.Tensor:
        rows, ball = self._rows, self._ball
        there = ball.project(rows.points + rows.step.view(-1, 1, 1, 1) * ball.steepest(rows.points, rows.gradient))
        if first:
            return there
        return ball.project(rows.points + _MOMENTUM * (there - rows.points) + (1 - _MOMENTUM) * (rows.points - rows.previous))

    def _sparse_step(self) -> torch.Tensor:
        rows = self._rows
        return self._ball.project(rows.points + rows.step.view(-1, 1, 1, 1) * sparse_sign(rows.gradient, rows.share))


def _back(rows: _Rows, which: torch.Tensor) -> _Rows:
    """The rows `which` (n,) at their best points again."""
    image = which.view(-1, 1, 1, 1)
    return replace(
        rows,
        points=torch.where(image, rows.best, rows.points),
        gradient=torch.where(image, rows.best_gradient, rows.gradient),
    )


def _changed(points: torch.Tensor, ball: Ball) -> torch.Tensor:
    """How many values of each row differ from the clean image, (n,)."""
    return row_sum((points != ball.images).to(points.dtype))


def checkpoints(steps: int) -> frozenset[int]:
    """The steps at which an ascent of so many looks at its step size: after 22 %, then in windows that shrink by 3 % down to 6 %.

    >>> sorted(checkpoints(100))[:5]
    [22, 41, 57, 70, 80]
    """
    reached, window, found = 0.0, 0.22, set()
    while reached + window < 1:
        reached += window
        found.add(math.ceil(round(reached * steps, 9)))
        window = max(window - 0.03, 0.06)
    return frozenset(found)


def _sparse_checks(steps: int) -> frozenset[int]:
    every = max(int(_SPARSE_CHECK * steps), 1)
    return frozenset(range(every, steps, every))
