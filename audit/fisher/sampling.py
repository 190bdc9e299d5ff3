"""What random directions say about the top eigenvalue of F: the estimate, its bias, its error and its interval, in numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class SampledSpectrum:
    """Estimates of lambda_max(F) and trace(F); the relative standard error of lambda_max; and what it cannot be below."""

    lambda_max: float
    trace: float
    standard_error: float
    lower_bound: float


def sampled_spectrum(differences: Floats, dimension: int, sampled: int | None = None) -> SampledSpectrum:
    """The spectrum of F from directional derivatives of s = 2 sqrt(p).

    With e directions measured for themselves and r sampled from the d' = d - e that are left, G = sum D D^T over the former plus
    (d' / r) sum D D^T over the latter has the spectrum of F in expectation. Of its top eigenvalue lambda_1 only the part a_1 that
    the sampled directions contribute is uncertain. Its upward bias is about (1 - r / d') (1 / r) sum_j a_1 a_j / (lambda_1 -
    lambda_j) (Lawley 1956, where a = lambda); that is subtracted, but never more than one standard error, beyond which the
    expansion fails. All directions unscaled give a lower bound, up to the finite-difference error.

    Args:
        differences: D (m, K), one row per orthonormal direction, the sampled ones first.
        dimension: d, the number of input values.
        sampled: r; None where all are.

    >>> sampled_spectrum(np.array([[3.0, 0.0], [0.0, 1.0]]), 2)
    SampledSpectrum(lambda_max=9.0, trace=10.0, standard_error=0.0, lower_bound=9.0)
    """
    directions = len(differences)
    sampled = directions if sampled is None else sampled
    left = dimension - (directions - sampled)
    weights = np.ones(directions)
    weights[:sampled] = left / max(sampled, 1)
    scaled = differences * np.sqrt(weights)[:, None]
    values, vectors = _eigen(scaled)
    trace, top = float((scaled**2).sum()), float(values[0])
    # Scaling only the sampled rows never turns a lower bound into more than the estimate.
    lower = float(_eigen(differences)[0][0])
    if top <= 0:
        return SampledSpectrum(lambda_max=0.0, trace=trace, standard_error=0.0, lower_bound=0.0)
    parts = ((scaled[:sampled] @ vectors) ** 2).sum(axis=0)
    error = float(parts[0]) / top * relative_standard_error(left, sampled) if sampled else 0.0
    bias = 0.0
    if error > 0:
        gaps = np.maximum(top - values[1:], 1e-12 * top)
        bias = min((1 - sampled / left) / sampled * float((parts[0] / top * parts[1:] / gaps).sum()), error)
    return SampledSpectrum(lambda_max=top * (1 - bias), trace=trace, standard_error=error, lower_bound=lower)


def _eigen(differences: Floats) -> tuple[Floats, Floats]:
    """Nonzero eigenvalues of D^T D, largest first, and their unit eigenvectors (K, k), for D (m, K)."""
    if len(differences) >= differences.shape[1]:
        values, vectors = np.linalg.eigh(differences.T @ differences)
        return np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    values, left = np.linalg.eigh(differences @ differences.T)
    values, left = np.maximum(values[::-1], 0.0), left[:, ::-1]
    sizes = np.sqrt(values)
    return values, np.divide(differences.T @ left, sizes, out=np.zeros((differences.shape[1], len(values))), where=sizes > 0)


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
