"""Fisher evidence, gathered on the first examples of the sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from audit.evidence.arrays import Bools, Floats, Images, Ints, Strings

# Examples whose image and top direction are kept: enough to see a pattern.
SHOWN_SENSITIVE = 6


@dataclass(frozen=True, kw_only=True)
class ShownDirection:
    """A most sensitive example with its image, its top direction (c, h, w) and lambda_max, kept because the report shows it."""

    position: int
    lambda_max: float
    clean: Images
    direction: Images


def most_sensitive(shown: Iterable[ShownDirection]) -> tuple[ShownDirection, ...]:
    """The `SHOWN_SENSITIVE` of largest lambda_max, largest first."""
    return tuple(sorted(shown, key=lambda example: (-example.lambda_max, example.position))[:SHOWN_SENSITIVE])


@dataclass(frozen=True, kw_only=True)
class LipschitzBound:
    """What the architecture allows at most: one row (m = 1), of the first example's chunk, since it is the model's alone.

    `log_lipschitz` (m,) is the natural logarithm of a Lipschitz constant, in L2, of the logits as a function of the image in
    [0, 1]; `unknown` (m,) says in words why there is none, and is empty where there is.
    """

    positions: Ints
    log_lipschitz: Floats
    unknown: Strings


@dataclass(frozen=True, kw_only=True)
class FisherSpectrum:
    """White-box Fisher evidence on the first examples of the sample, at the fitted `temperature` and raw (T = 1).

    `dimension` is d, the values of an image. `gram` (n, K, K) = J J^T of the logits, float64, from which the spectrum follows at
    any other temperature; (n, 0, 0) with many classes, where Lanczos gave the eigenvalue. `residual` (n,) then bounds how far some
    eigenvalue is from lambda_max, and `trace_error` (n,) is the trace's standard error; both are 0 where the spectrum is exact.
    `margin_*` (n,) are linearised margin radii (0 where misclassified); `zero_gradient` marks examples whose margin gradients all
    vanish. `shown` holds the most sensitive examples.
    """

    positions: Ints
    dimension: int
    logits: Floats
    gram: Floats
    temperature: float
    lambda_max: Floats
    trace: Floats
    residual: Floats
    trace_error: Floats
    lambda_max_raw: Floats
    trace_raw: Floats
    residual_raw: Floats
    trace_error_raw: Floats
    margin_linf: Floats
    margin_l2: Floats
    margin_l1: Floats
    zero_gradient: Bools
    shown: tuple[ShownDirection, ...]


@dataclass(frozen=True, kw_only=True)
class FisherEstimate:
    """Query-only Fisher evidence on the first examples of the sample, at the fitted temperature and raw (T = 1).

    `kind` says how the directions were chosen. `standard_error` (n,) is the relative standard error of lambda from direction
    sampling (0 when the directions span the input); `lower_bound` (n,) what lambda cannot be below but for the finite differences;
    `step` the finite-difference step h; `step_error` (n,) the relative change of lambda between neighbouring steps; `status` (n,)
    is "measured", "saturated" (the outputs do not move and are one-hot) or "not_smooth".
    """

    positions: Ints
    dimension: int
    directions: int
    kind: str
    lambda_max: Floats
    trace: Floats
    lambda_max_raw: Floats
    trace_raw: Floats
    standard_error: Floats
    lower_bound: Floats
    step: Floats
    step_error: Floats
    queries: Ints
    status: Strings
