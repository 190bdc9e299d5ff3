"""Linearised margin radii: how far the decision boundary is if the logits were linear."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from audit.evidence import Bools, Floats, Ints

# With many classes, only the strongest competitors can be nearest.
MAX_OTHERS = 20


@dataclass(frozen=True, kw_only=True)
class Margins:
    """Radii (n,) per norm, 0 where misclassified, and whether all gradient differences of an example vanish, (n,)."""

    linf: Floats
    l2: Floats
    l1: Floats
    zero_gradient: Bools


def competitors(logits: Floats, labels: Ints) -> Ints:
    """(n, 1 + m): the label of each example, then the m = min(20, K - 1) other classes of highest logit, ties in class order."""
    found = []
    for row, label in zip(logits, labels.tolist(), strict=True):
        others = [int(j) for j in np.argsort(-row, kind="stable") if j != label][:MAX_OTHERS]
        found.append([label, *others])
    return np.array(found, dtype=np.int64).reshape(len(labels), -1)


def linearised_margins(logits: Floats, jacobian: torch.Tensor, labels: Ints) -> Margins:
    """`margins_of_classes` from the Jacobian of all logits.

    Args:
        logits: (n, K).
        jacobian: (n, K, d), finite.
        labels: (n,).
    """
    classes = competitors(logits, labels)
    wanted = torch.from_numpy(classes).to(jacobian.device)
    return margins_of_classes(logits, jacobian.gather(1, wanted[:, :, None].expand(-1, -1, jacobian.shape[2])), classes)


def margins_of_classes(logits: Floats, gradients: torch.Tensor, classes: Ints) -> Margins:
    """Min over other classes j of (z_y - z_j) / dual norm of (J_y - J_j): L1 for Linf, L2 for L2, Linf for L1.

    With more than 20 other classes, the 20 of highest logit. A radius never exceeds the largest distance inside [0, 1]^d
    (1, sqrt(d), d), which also stands for an infinite one.

    Args:
        logits: (n, K).
        gradients: (n, 1 + m, d), finite: of the logits of `classes`.
        classes: (n, 1 + m), the label first.
    """
    count, dimension = len(logits), gradients.shape[2]
    radii, zero = np.zeros((3, count)), np.zeros(count, dtype=np.bool_)
    limits = np.array([1.0, math.sqrt(dimension), float(dimension)])
    for i in range(count):
        label, others = int(classes[i, 0]), classes[i, 1:]
        sizes = np.array([_dual_norms(gradients[i, 0].double() - row.double()) for row in gradients[i, 1:]])
        zero[i] = not sizes.any()
        if logits[i].argmax() != label:
            continue
        gaps = (logits[i, label] - logits[i, others])[:, None]
        with np.errstate(over="ignore"):
            ratios = np.divide(gaps, sizes, out=np.full(sizes.shape, np.inf), where=sizes > 0)
        radii[:, i] = np.minimum(ratios.min(axis=0), limits)
    return Margins(linf=radii[0], l2=radii[1], l1=radii[2], zero_gradient=zero)


def _dual_norms(difference: torch.Tensor) -> tuple[float, float, float]:
    """L1, L2 and Linf norms: the duals of Linf, L2 and L1."""
    size = difference.abs()
    return float(size.sum()), float(difference.square().sum().sqrt()), float(size.max())
