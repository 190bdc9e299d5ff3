"""In which order the classes are aimed at: (n, m) class numbers per example, the most promising first, never the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum
from audit.attacks.run import MOST_CLASSES_AT_ONCE, Batch, Oracle
from audit.vocabulary import Threat

# (model, clean examples, their logits, threat) -> (n, m) classes in order.
Order = Callable[[Oracle, Batch, torch.Tensor, Threat], torch.Tensor]

# With many classes a Jacobian of all of them costs more than the attack: the highest logits held the three best in 52 of 52 cases.
CANDIDATES = 9
# Examples whose Jacobians are held at a time.
_ROWS = 32


def candidates(classes: int) -> int:
    """How many classes of K are ordered: all wrong ones, or those of the highest logits.

    >>> candidates(10), candidates(1000)
    (9, 9)
    """
    return classes - 1 if classes <= MOST_CLASSES_AT_ONCE else CANDIDATES


def passes(classes: int) -> tuple[int, int]:
    """Forward and backward passes per example of `box_order`."""
    return (1, classes) if classes <= MOST_CLASSES_AT_ONCE else (CANDIDATES + 1, CANDIDATES + 1)


def logit_order(oracle: Oracle, batch: Batch, logits: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The classes of the highest of the clean `logits` (n, K), ties in class order; asks the model nothing."""
    others = logits.scatter(1, batch.labels[:, None], -torch.inf)
    return others.argsort(dim=1, descending=True, stable=True)[:, : candidates(logits.shape[1])]


def box_order(oracle: Oracle, batch: Batch, logits: torch.Tensor, threat: Threat) -> torch.Tensor:
    """The classes with the smallest margin that is left when the model is linear, from one Jacobian at the clean images.

    That is z_y - z_t minus the most that z_t - z_y gains inside the ball and [0, 1]; `logits` (n, K) are those of the clean images.
    """
    order = logit_order(oracle, batch, logits, threat)
    parts = []
    for begin in range(0, len(batch), _ROWS):
        index = torch.arange(begin, min(begin + _ROWS, len(batch)), device=logits.device)
        part, wanted = batch.take(index), order[index]
        z, rows = oracle.class_gradients(part, part.images, torch.cat([wanted, part.labels[:, None]], dim=1))
        gaps = z.gather(1, part.labels[:, None]) - z.gather(1, wanted)
        ball = Ball.around(part.images, threat)
        gains = []
        for column in range(wanted.shape[1]):
            slope = rows[:, column] - rows[:, -1]
            gains.append(row_sum((ball.farthest(slope) - part.images) * slope))
        left = gaps - torch.stack(gains, dim=1)
        # An example that was not answered keeps the order of its logits.
        parts.append(wanted.gather(1, left.nan_to_num(nan=0.0).argsort(dim=1, stable=True)))
    return torch.cat(parts) if parts else order


ORDERS: Mapping[str, Order] = {"box": box_order, "logits": logit_order}
