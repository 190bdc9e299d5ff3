"""Query-only Fisher: central differences of s = 2 sqrt(p) along orthonormal directions; forward passes only.

The square-root embedding has F = J_s^T J_s and stays finite where log p does not. At m = d the directions are a basis of the
input and the estimate is exact up to the finite-difference step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from audit.errors import ModelError
from audit.evidence import Floats
from audit.fisher.directions import Directions, best_kind, check_budget, draw, orthonormal_directions
from audit.fisher.sampling import SampledSpectrum, relative_standard_error, sampled_spectrum
from audit.fisher.spectrum import log_softmax

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


class Answers(Protocol):
    """A model that can be asked."""

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits or log-probabilities (n, K) of images (n, c, h, w)."""


@dataclass(frozen=True, kw_only=True)
class QueryEstimate:
    """The estimate of one example at the fitted temperature and raw (T = 1); NaN where no output moved. `step` is h in L2.

    `standard_error` is that of lambda_max, relative; `lower_bound` what lambda_max cannot be below, but for the finite differences.
    """

    lambda_max: float
    trace: float
    lambda_max_raw: float
    trace_raw: float
    standard_error: float
    lower_bound: float
    step: float
    step_error: float
    queries: int
    status: str


def rows_asked(dimension: int, directions: int, kind: Directions | None = None) -> tuple[int, ...]:
    """How many images each call of `estimate` asks about: both sides of the probe's directions at every step, then of the others.

    >>> rows_asked(784, 64)
    (16, 16, 16, 16, 112)
    """
    directions = min(directions, dimension)
    probe = min(PROBE_DIRECTIONS, directions)
    swept = (kind or best_kind(dimension, directions)) is Directions.COORDINATE
    batch = _directions_per_call(dimension)
    parts = (*[probe] * len(STEP_LADDER), dimension if swept else directions - probe)
    return tuple(2 * min(batch, part - start) for part in parts for start in range(0, part, batch))


def directions_within(queries: int, dimension: int) -> int:
    """The largest m whose questions fit into a budget; fewer than 2 where nothing fits.

    >>> directions_within(176, 784), directions_within(2000, 784), directions_within(10, 784)
    (64, 784, 1)
    """
    swept = sum(rows_asked(dimension, dimension, Directions.COORDINATE))
    if queries >= swept:
        return dimension
    ladder = 2 * (len(STEP_LADDER) - 1)
    most = queries // (2 + ladder)
    return most if most < PROBE_DIRECTIONS else min(queries // 2 - PROBE_DIRECTIONS * (len(STEP_LADDER) - 1), dimension - 1)


def _directions_per_call(dimension: int) -> int:
    return max(1, _BATCH_VALUES // (2 * dimension))


def estimate(
    classifier: Answers,
    image: torch.Tensor,
    temperature: float,
    directions: int,
    generator: torch.Generator,
    kind: Directions = Directions.ORTHOGONAL,
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
        kind: how the directions are chosen; a coordinate sweep chooses its step on random ones, since single pixels may be dead.

    Raises:
        InputError: fewer than two directions.
    """
    dimension = image.numel()
    check_budget(directions, dimension)
    swept = kind is Directions.COORDINATE
    drawn = draw(kind, tuple(image.shape), directions, generator)
    probe_rows = orthonormal_directions(dimension, PROBE_DIRECTIONS, generator) if swept else drawn.rows[:PROBE_DIRECTIONS]
    probe, others = probe_rows.to(image), drawn.rows[0 if swept else len(probe_rows) :].to(image)
    answers = [_differences(classifier, image, probe, _length(r, dimension), temperature) for r in STEP_LADDER]
    chosen, step_error, smooth = _choose([fitted for fitted, _, _ in answers], dimension)
    step = _length(STEP_LADDER[chosen], dimension)
    fitted, raw, confidence = answers[chosen]
    if len(others):
        more_fitted, more_raw, _ = _differences(classifier, image, others, step, temperature)
        fitted, raw = (more_fitted, more_raw) if swept else (np.concatenate([fitted, more_fitted]), np.concatenate([raw, more_raw]))
    still = not any(part.any() for part, _, _ in answers) and not fitted.any()
    found, found_raw = (_sampled(part, dimension, drawn.sampled) for part in (fitted, raw))
    return QueryEstimate(
        lambda_max=found.lambda_max,
        trace=found.trace,
        lambda_max_raw=found_raw.lambda_max,
        trace_raw=found_raw.trace,
        standard_error=found.standard_error,
        lower_bound=found.lower_bound,
        step=step,
        step_error=step_error,
        queries=2 * (len(others) + len(STEP_LADDER) * len(probe)),
        status=SATURATED if still and confidence >= _ONE_HOT else MEASURED if smooth else NOT_SMOOTH,
    )


def _length(step: float, dimension: int) -> float:
    return step * math.sqrt(dimension)


def _sampled(differences: Floats, dimension: int, sampled: int) -> SampledSpectrum:
    # A flat output says that lambda is below what can be seen, not that it is 0.
    if not differences.any():
        error = relative_standard_error(dimension, sampled) if sampled else 0.0
        return SampledSpectrum(lambda_max=math.nan, trace=math.nan, standard_error=error, lower_bound=math.nan)
    return sampled_spectrum(differences, dimension, sampled)


def _choose(probes: list[Floats], dimension: int) -> tuple[int, float, bool]:
    """Index of the smallest stable step, the relative change of lambda to the next one, and whether the outputs are smooth."""
    size = [float(np.sqrt((part**2).sum())) for part in probes]
    top = [sampled_spectrum(part, dimension).lambda_max if part.any() else 0.0 for part in probes]
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
    classifier: Answers, image: torch.Tensor, rows: torch.Tensor, step: float, temperature: float
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


def _both_sides(classifier: Answers, image: torch.Tensor, moves: torch.Tensor) -> tuple[Floats, Floats]:
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
