"""Query-only Fisher: central differences of s = 2 sqrt(p) along random orthonormal directions; forward passes only.

The square-root embedding has F = J_s^T J_s and stays finite where log p does not. At m = d the directions are a basis of the
input and the estimate is exact up to the finite-difference step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from audit.errors import ModelError
from audit.evidence import Floats
from audit.fisher.sampling import sampled_spectrum
from audit.fisher.spectrum import log_softmax
from audit.models import Classifier

MEASURED, SATURATED, NOT_SMOOTH = "measured", "saturated", "not_smooth"
# Steps per input value, times the input range of 1; h = r sqrt(d) in L2.
STEP_LADDER = (1e-5, 1e-4, 1e-3, 1e-2)
# Directions asked at every step, to choose one; the rest are asked at the chosen step only.
PROBE_DIRECTIONS = 8
# A step is stable when ten times the step changes lambda by less than this.
_STABLE_CHANGE = 0.05
_SLOPE_TOLERANCE = 0.15
_MAX_ZERO_SHARE = 0.05
_ONE_HOT = 1 - 1e-6
# Values of one batch of queries, which bounds memory for large images.
_BATCH_VALUES = 2**24


@dataclass(frozen=True, kw_only=True)
class QueryEstimate:
    """The estimate of one example at the fitted temperature and raw (T = 1); NaN where no output moved. `step` is h in L2."""

    lambda_max: float
    trace: float
    lambda_max_raw: float
    trace_raw: float
    step: float
    step_error: float
    queries: int
    status: str


def orthonormal_directions(dimension: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Min(count, d) random orthonormal rows (m, d), float32 on the CPU, uniformly distributed up to signs."""
    normal = torch.randn(dimension, min(count, dimension), generator=generator)
    basis: torch.Tensor = torch.linalg.qr(normal).Q
    return basis.T.contiguous()


def rows_asked(dimension: int, directions: int) -> tuple[int, ...]:
    """How many images each call of `estimate` asks about: both sides of the probe's directions at every step, then of the others.

    >>> rows_asked(784, 64)
    (16, 16, 16, 16, 112)
    """
    probe = min(PROBE_DIRECTIONS, directions, dimension)
    batch = _directions_per_call(dimension)
    parts = (*[probe] * len(STEP_LADDER), min(directions, dimension) - probe)
    return tuple(2 * min(batch, part - start) for part in parts for start in range(0, part, batch))


def _directions_per_call(dimension: int) -> int:
    return max(1, _BATCH_VALUES // (2 * dimension))


def estimate(
    classifier: Classifier, image: torch.Tensor, temperature: float, directions: int, generator: torch.Generator
) -> QueryEstimate:
    """Estimate lambda_max(F) and trace(F) of one image from 2 m + 48 forward passes (m directions, 8 of them at four steps).

    The smallest stable step is used. The status is "saturated" when no output moves at any step and one class has all the
    probability, "not_smooth" when outputs do not change in proportion to the step (quantised or constant outputs).

    Args:
        classifier: the model.
        image: (c, h, w) on the classifier's device.
        temperature: T > 0 of softmax(z / T).
        directions: m; more than d counts as d.
        generator: the example's own.
    """
    dimension = image.numel()
    rows = orthonormal_directions(dimension, directions, generator).to(image)
    probe = rows[:PROBE_DIRECTIONS]
    answers = [_differences(classifier, image, probe, _length(r, dimension), temperature) for r in STEP_LADDER]
    chosen, step_error, smooth = _choose([fitted for fitted, _, _ in answers], dimension)
    step = _length(STEP_LADDER[chosen], dimension)
    fitted, raw, confidence = answers[chosen]
    if len(rows) > len(probe):
        more_fitted, more_raw, _ = _differences(classifier, image, rows[len(probe) :], step, temperature)
        fitted, raw = np.concatenate([fitted, more_fitted]), np.concatenate([raw, more_raw])
    still = not any(part.any() for part, _, _ in answers) and not fitted.any()
    lambda_max, trace = _values(fitted, dimension)
    lambda_max_raw, trace_raw = _values(raw, dimension)
    return QueryEstimate(
        lambda_max=lambda_max,
        trace=trace,
        lambda_max_raw=lambda_max_raw,
        trace_raw=trace_raw,
        step=step,
        step_error=step_error,
        queries=2 * (len(rows) + (len(STEP_LADDER) - 1) * len(probe)),
        status=SATURATED if still and confidence >= _ONE_HOT else MEASURED if smooth else NOT_SMOOTH,
    )


def _length(step: float, dimension: int) -> float:
    return step * math.sqrt(dimension)


def _values(differences: Floats, dimension: int) -> tuple[float, float]:
    # A flat output says that lambda is below what can be seen, not that it is 0.
    return sampled_spectrum(differences, dimension) if differences.any() else (math.nan, math.nan)


def _choose(probes: list[Floats], dimension: int) -> tuple[int, float, bool]:
    """Index of the smallest stable step, the relative change of lambda to the next one, and whether the outputs are smooth."""
    size = [float(np.sqrt((part**2).sum())) for part in probes]
    top = [sampled_spectrum(part, dimension)[0] if part.any() else 0.0 for part in probes]
    zeros = [float((~part.any(axis=1)).mean()) for part in probes]
    pairs = range(len(probes) - 1)
    change = [abs(top[i] / top[i + 1] - 1) if top[i + 1] > 0 else math.inf for i in pairs]
    # |s(x + hv) - s(x - hv)| grows like h: slope 1 in logarithms, so D itself has slope 0.
    decades = [math.log10(STEP_LADDER[i + 1] / STEP_LADDER[i]) for i in pairs]
    slope = [math.log10(size[i + 1] / size[i]) / decades[i] if min(size[i], size[i + 1]) > 0 else math.inf for i in pairs]
    smooth = [i for i in pairs if abs(slope[i]) <= _SLOPE_TOLERANCE and zeros[i] < _MAX_ZERO_SHARE]
    stable = [i for i in smooth if change[i] <= _STABLE_CHANGE]
    if stable:
        return stable[0], change[stable[0]], True
    if smooth:
        best = min(smooth, key=lambda i: change[i])
        return best, change[best], True
    best = min(pairs, key=lambda i: abs(slope[i]))
    return best, min(change[best], 1.0), False


def _differences(
    classifier: Classifier, image: torch.Tensor, rows: torch.Tensor, step: float, temperature: float
) -> tuple[Floats, Floats, float]:
    """Central differences of 2 sqrt(p) along `rows` (m, d): at T and at 1, (m, K) each, and the largest probability seen at T."""
    fitted: list[Floats] = []
    raw: list[Floats] = []
    confidence = 0.0
    block = _directions_per_call(image.numel())
    for start in range(0, len(rows), block):
        moves = step * rows[start : start + block].view(-1, *image.shape)
        logits, spans = _both_sides(classifier, image, moves)
        for parts, t in ((fitted, temperature), (raw, 1.0)):
            log_p = log_softmax(logits, t)
            plus, minus = np.split(2 * np.exp(log_p / 2), 2)
            parts.append((plus - minus) / spans[:, None])
            if t == temperature:
                confidence = max(confidence, float(np.exp(log_p.max())))
    return np.concatenate(fitted), np.concatenate(raw), confidence


def _both_sides(classifier: Classifier, image: torch.Tensor, moves: torch.Tensor) -> tuple[Floats, Floats]:
    """Logits at x + move, then at x - move, (2 m, K) float64, and the realised distances between the two, (m,)."""
    points = torch.cat([image + moves, image - moves])
    try:
        logits = classifier.logits(points)
    except ModelError:
        # Some models refuse values outside their range.
        points = points.clamp(0, 1)
        logits = classifier.logits(points)
    plus, minus = points.chunk(2)
    spans = np.array([float((a - b).double().square().sum().sqrt()) for a, b in zip(plus, minus, strict=True)])
    return logits.double().cpu().numpy(), np.maximum(spans, np.finfo(np.float64).tiny)
