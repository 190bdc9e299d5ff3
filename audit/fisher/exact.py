"""White-box Fisher: the Gram matrix of the logits' Jacobian, from which the spectrum follows at any temperature."""

from __future__ import annotations

import numpy as np
import torch

from audit.evidence import Floats
from audit.fisher.spectrum import information, log_softmax

# Up to so many classes, a backward pass for each costs less than the iterations, and nothing is left to estimate.
MOST_CLASSES_EXACT = 32
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


def top_directions(jacobian: torch.Tensor, gram_matrices: Floats, logits: Floats, temperature: float) -> torch.Tensor:
    """Unit eigenvectors (n, d) of F's largest eigenvalue, float32 on the CPU; zeros where F is 0.

    Args:
        jacobian: (n, K, d) of the logits.
        gram_matrices: (n, K, K), J J^T.
        logits: (n, K).
        temperature: T > 0.
    """
    found = torch.zeros(len(logits), jacobian.shape[2])
    for i in range(len(logits)):
        p = np.exp(log_softmax(logits[i], temperature))
        vector = np.linalg.eigh(information(gram_matrices[i], logits[i], temperature))[1][:, -1]
        # B^T u with B = diag(sqrt p)(I - 1 p^T). Its entries sum to 0; that of the top class would cancel where p is nearly 1.
        weights = np.sqrt(p) * vector
        weights = weights - p * weights.sum()
        top = int(np.argmax(logits[i]))
        weights[top] = 0.0
        weights[top] = -weights.sum()
        size = float(np.abs(weights).max())
        if size > 0:
            rows = torch.from_numpy(weights / size).to(jacobian)
            found[i] = torch.nn.functional.normalize(rows @ jacobian[i], dim=0).cpu()
    return found


def rows_at_once(classes: int, dimension: int, budget: int = 2**26) -> int:
    """How many examples' Jacobians (K x d values each) fit a budget of `budget` values, at least 1 and at most 32."""
    return max(1, min(32, budget // max(classes * dimension, 1)))
