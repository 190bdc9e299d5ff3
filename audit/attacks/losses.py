"""The losses attacks maximise: functions of logits (b, K), labels (b,) and targets (b,), one value per row.

Logits may be log-probabilities: every loss here is the same for logits shifted by a constant. An untargeted loss ignores
`targets`. Where a loss of the literature needs more classes than there are, the next simpler one stands in: it says which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

# Smallest divisor of a scale: rows of equal logits stay finite.
_TINY = 1e-12


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """-log softmax(z)_y; its gradient vanishes on saturated logits."""
    return -logits.log_softmax(dim=1).gather(1, labels[:, None])[:, 0]


def cross_entropy_targeted(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Log softmax(z)_t."""
    return logits.log_softmax(dim=1).gather(1, targets[:, None])[:, 0]


def margin(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Largest other logit minus the true one: positive once the example is misclassified.

    >>> margin(torch.tensor([[2.0, 5.0, 1.0]]), torch.tensor([1])).tolist()
    [-3.0]
    """
    true = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -math.inf)
    return others.amax(dim=1) - true


def logit_margin(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """`margin` as a loss."""
    return margin(logits, labels)


def scaled_probability_margin(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """`margin` of the softmax of z / s, s = (max z - mean z) / 4 per example and without gradient.

    The scale brings saturated and flat outputs to one temperature, so that gradients neither vanish nor follow one class alone.
    With two classes it makes the loss the same everywhere: the plain margin.
    """
    if logits.shape[1] < 3:
        return margin(logits, labels)
    scale = ((logits.amax(dim=1) - logits.mean(dim=1)).detach() / 4).clamp(min=_TINY)
    return margin((logits / scale[:, None]).softmax(dim=1), labels)


def margin_targeted(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """z_t - z_y."""
    return (logits.gather(1, targets[:, None]) - logits.gather(1, labels[:, None]))[:, 0]


def difference_of_logits_ratio(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """DLR (Croce & Hein 2020, arXiv 2003.01690, eq. 6): margin / (largest - third largest logit).

    With two classes there is no third logit: the plain margin.
    """
    if logits.shape[1] < 3:
        return margin(logits, labels)
    top = logits.topk(3, dim=1).values
    return margin(logits, labels) / (top[:, 0] - top[:, 2] + _TINY)


def difference_of_logits_ratio_targeted(logits: torch.Tensor, labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Targeted DLR (Croce & Hein 2020, eq. 7): (z_t - z_y) / (largest - mean of third and fourth largest logit).

    With three classes the third logit alone, with two the plain difference.
    """
    difference = margin_targeted(logits, labels, targets)
    if logits.shape[1] < 3:
        return difference
    top = logits.topk(min(4, logits.shape[1]), dim=1).values
    return difference / (top[:, 0] - top[:, 2:].mean(dim=1) + _TINY)


LOSSES: Mapping[str, Loss] = {
    "cross_entropy": cross_entropy,
    "margin": logit_margin,
    "scaled_probability_margin": scaled_probability_margin,
    "dlr": difference_of_logits_ratio,
    "cross_entropy_targeted": cross_entropy_targeted,
    "margin_targeted": margin_targeted,
    "dlr_targeted": difference_of_logits_ratio_targeted,
}
