"""Fisher evidence, gathered on the first examples of the sample."""

from __future__ import annotations

from dataclasses import dataclass

from audit.evidence.arrays import Bools, Floats, Ints, Strings


@dataclass(frozen=True, kw_only=True)
class FisherSpectrum:
    """White-box Fisher evidence on the first examples of the sample.

    `gram` (n, K, K) = J J^T of the logits, float64, from which the spectrum follows at any temperature. `margin_*` (n,) are
    linearised margin radii (0 where misclassified); `zero_gradient` marks examples whose margin gradients all vanish.
    """

    positions: Ints
    logits: Floats
    gram: Floats
    margin_linf: Floats
    margin_l2: Floats
    margin_l1: Floats
    zero_gradient: Bools


@dataclass(frozen=True, kw_only=True)
class FisherEstimate:
    """Query-only Fisher evidence on the first examples of the sample, at the fitted temperature and raw (T = 1).

    `standard_error` (n,) is the relative standard error of lambda from direction sampling (0 when the directions span the
    input); `step` the finite-difference step h; `step_error` (n,) the relative change of lambda between neighbouring steps;
    `status` (n,) is "measured", "saturated" (the outputs do not move and are one-hot) or "not_smooth".
    """

    positions: Ints
    dimension: int
    directions: int
    lambda_max: Floats
    trace: Floats
    lambda_max_raw: Floats
    trace_raw: Floats
    standard_error: Floats
    step: Floats
    step_error: Floats
    queries: Ints
    status: Strings
