"""The losses attacks maximise: functions of logits (b, K) and labels (b,), one value per row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """-log softmax(z)_y; its gradient vanishes on saturated logits."""
    return -logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0]


def margin(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Largest other logit minus the true one: positive once the example is misclassified.

    >>> margin(torch.tensor([[2.0, 5.0, 1.0]]), torch.tensor([1])).tolist()
    [-3.0]
    """
    true = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -math.inf)
    return others.amax(dim=1) - true


LOSSES: Mapping[str, Loss] = {"cross_entropy": cross_entropy, "margin": margin}
