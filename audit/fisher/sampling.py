"""What random directions say about the top eigenvalue of F: the estimate, its bias, its error and its interval, in numpy."""

from __future__ import annotations

import math

import numpy as np

from audit.evidence import Floats

# 97.5 % point of the standard normal distribution.
_Z = 1.959963984540054


def relative_standard_error(dimension: int, directions: int) -> float:
    """Relative standard error of lambda from m orthonormal directions out of d: sqrt(2 (d - m) / (m (d + 2))), 0 at m = d.

    >>> round(relative_standard_error(784, 64), 3), relative_standard_error(64, 64)
    (0.169, 0.0)
    """
    d, m = dimension, min(directions, dimension)
    return math.sqrt(2 * (d - m) / (m * (d + 2)))


def sampled_spectrum(differences: Floats, dimension: int) -> tuple[float, float]:
    """Estimates of lambda_max(F) and trace(F) from directional derivatives of s = 2 sqrt(p).

    G = (d / m) sum D D^T has the spectrum of F in expectation, its top eigenvalue too large by about
    (1 - m / d) (1 / m) sum_j lambda_j / (lambda_1 - lambda_j) of itself (Lawley 1956). That term is subtracted, but never more
    than one standard error, beyond which the expansion fails.

    Args:
        differences: D (m, K), one row per orthonormal direction.
        dimension: d, the number of input values.
    """
    directions, classes = differences.shape
    outer = differences @ differences.T if directions < classes else differences.T @ differences
    eigenvalues = np.linalg.eigvalsh(outer)[::-1] * (dimension / directions)
    top, rest = float(eigenvalues[0]), eigenvalues[1:]
    error = relative_standard_error(dimension, directions)
    bias = 0.0
    if error > 0 and top > 0:
        gaps = np.maximum(top - rest, 1e-12 * top)
        bias = min((1 - directions / dimension) / directions * float((np.maximum(rest, 0) / gaps).sum()), error)
    return max(top, 0.0) * (1 - bias), dimension / directions * float((differences**2).sum())


def interval(lambda_max: Floats, standard_error: Floats, step_error: Floats) -> tuple[Floats, Floats]:
    """95 % interval of lambda: lambda exp(-+1.96 SE), widened by the relative step error, so that its width is not 0 at m = d.

    Args:
        lambda_max: (n,) estimates.
        standard_error: (n,) relative standard errors.
        step_error: (n,) relative changes between neighbouring finite-difference steps.

    Returns:
        low (n,) and high (n,).
    """
    half = _Z * np.asarray(standard_error) + np.log1p(np.asarray(step_error))
    return lambda_max * np.exp(-half), lambda_max * np.exp(half)
