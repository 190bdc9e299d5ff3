"""The spectrum of F = J^T S J from the Gram matrix J J^T, at any temperature, in numpy."""

from __future__ import annotations

import numpy as np

from audit.evidence import Floats


def log_softmax(logits: Floats, temperature: float = 1.0) -> Floats:
    """Log softmax(z / T) over the last axis, float64; finite for finite logits."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    scaled = scaled - scaled.max(axis=-1, keepdims=True)
    result: Floats = scaled - np.log(np.exp(scaled).sum(axis=-1, keepdims=True))
    return result


def spectrum(gram: Floats, logits: Floats, temperature: float) -> tuple[Floats, Floats, Floats]:
    """Largest eigenvalue, trace and effective rank of F(x) with p = softmax(z / T), per example.

    F has the nonzero spectrum of B (C G C^T) B^T / T^2, where G = J J^T, C subtracts the row of the top class c, and
    B = diag(sqrt p)(I - 1 p^T). Without C the rows of a saturated example cancel: p_c is 1 to rounding, and its row with it.

    Args:
        gram: (n, K, K) float64, J J^T of the logits.
        logits: (n, K).
        temperature: T > 0.

    Returns:
        lambda_max (n,) and trace (n,) in 1 / pixel range², and effective rank (n,) = trace / lambda_max, 0 where F is 0.

    >>> lam, trace, rank = spectrum(np.eye(2)[None], np.zeros((1, 2)), 1.0)
    >>> round(float(lam[0]), 6), round(float(rank[0]), 6)
    (0.5, 1.0)
    """
    count = len(logits)
    largest, trace = np.zeros(count), np.zeros(count)
    for i in range(count):
        matrix = information(gram[i], logits[i], temperature)
        largest[i] = max(float(np.linalg.eigvalsh(matrix)[-1]), 0.0)
        trace[i] = max(float(np.trace(matrix)), largest[i])
    rank = np.divide(trace, largest, out=np.zeros(count), where=largest > 0)
    return largest, trace, rank


def information(gram: Floats, logits: Floats, temperature: float) -> Floats:
    """B (C G C^T) B^T / T^2 of one example, (K, K), symmetric: it has the nonzero spectrum of F."""
    top = int(np.argmax(logits))
    centred = gram - gram[top]
    centred = centred - centred[:, top, None]
    p = np.exp(log_softmax(logits, temperature))
    root = np.sqrt(p)
    mean = centred @ p
    inner = centred - mean[:, None] - mean[None, :] + p @ mean
    matrix: Floats = root[:, None] * inner * root[None, :] / temperature**2
    return (matrix + matrix.T) / 2
