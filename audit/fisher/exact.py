"""White-box Fisher: the Gram matrix of the logits' Jacobian, from which the spectrum follows at any temperature."""

from __future__ import annotations

import numpy as np
import torch

from audit.evidence import Floats

# Columns converted to float64 at a time: bounds memory, and fixes the order of summation.
_COLUMNS = 65536


def gram(jacobian: torch.Tensor) -> Floats:
    """J J^T in float64 of each example: jacobian (n, K, d) -> (n, K, K)."""
    count, classes, dimension = jacobian.shape
    result = torch.zeros(count, classes, classes, dtype=torch.float64)
    for i in range(count):
        for start in range(0, dimension, _COLUMNS):
            part = jacobian[i, :, start : start + _COLUMNS].double()
            result[i] += (part @ part.T).cpu()
    return np.asarray(result.numpy())


def rows_at_once(classes: int, dimension: int, budget: int = 2**26) -> int:
    """How many examples' Jacobians (K x d values each) fit a budget of `budget` values, at least 1 and at most 32."""
    return max(1, min(32, budget // max(classes * dimension, 1)))
