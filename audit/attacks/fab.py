"""The fast adaptive boundary attack (Croce & Hein 2020, arXiv 1907.02044), for Linf, L2 and L1.

With the goal `ERROR_BY_TARGET` it is the targeted form FAB-T, whose cost does not grow with the number of classes.
"""

from __future__ import annotations

import torch

from audit.attacks.ball import length
from audit.attacks.hyperplane import first_look, nearest_boundary, smallest_change
from audit.attacks.l1_ball import row_sum
from audit.attacks.minimal import Goal, Nearest, close_in
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Norm

# The paper's parameters: largest weight of the clean image, overshoot, how much of the way remains after a success.
ALPHA_MAX, ETA, BETA = 0.1, 1.05, 0.9
_CLOSE_IN = 6
_TINY = 1e-300


def fab(
    oracle: Oracle, batch: Batch, norm: Norm, *, steps: int = 100, goal: Goal = Goal.ERROR, enough: float = 0.0
) -> torch.Tensor:
    """Step to the linearised boundary's nearest point, mixed with its point nearest to the clean image (Algorithm 1).

    After every success the search goes back towards the clean image.

    Differs from the source in: the final search halves; there are no random restarts.

    Args:
        oracle: the model.
        batch: clean images, labels, and targets for a goal that has one.
        norm: any.
        steps: each costs a gradient of every candidate class (one for a goal with a target) and one more forward pass.
        goal: what to look for.
        enough: an example is given up once it has an image at most this far.

    Returns:
        The nearest image met that reaches the goal, (n, c, h, w); the clean image where there was none.
    """
    nearest = Nearest(batch, norm, goal, enough)
    alive, rivals = first_look(oracle, batch, nearest)
    points = batch.images[alive]
    for _ in range(steps):
        if not len(alive):
            break
        live = batch.take(alive)
        _, f, w = nearest_boundary(oracle, live, points, rivals, norm, goal)
        x, point = live.images.double(), points.double()
        delta = smallest_change(points, w, -f, norm)
        delta_clean = smallest_change(live.images, w, -(f.double() + row_sum(w.double() * (x - point))), norm)
        near, far = length(delta, norm), length(delta_clean, norm)
        alpha = (near / (near + far).clamp(min=_TINY)).clamp(max=ALPHA_MAX)[:, None, None, None]
        points = ((1 - alpha) * (point + ETA * delta) + alpha * (x + ETA * delta_clean)).clamp(0, 1).float()
        logits = oracle.logits(live, points)
        reached = nearest.note(alive, points, logits, live)
        back = (x + BETA * (points.double() - x)).clamp(0, 1).float()
        points = torch.where(reached[:, None, None, None], back, points)
        kept = nearest.open(alive, logits)
        alive, points, rivals = alive[kept], points[kept], rivals[kept]
    close_in(oracle, batch, nearest, overshoot=1 - BETA, rounds=_CLOSE_IN)
    return nearest.images
