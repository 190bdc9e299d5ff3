"""Evidence written down instead of measured, for tests of what is computed from it."""

from __future__ import annotations

import numpy as np

from audit.evidence import (
    BROKEN,
    NATURAL_ERROR,
    NOT_BROKEN,
    FisherEstimate,
    FisherSpectrum,
    GradientProbe,
    LipschitzBound,
    Predictions,
    Probe,
    ReferenceAttack,
    Temperature,
    WorstCase,
)
from audit.vocabulary import Threat

LINF = Threat.parse("linf:8/255")


def predictions(logits, labels) -> Predictions:
    logits = np.asarray(logits, dtype=float)
    return Predictions(
        positions=np.arange(len(logits)),
        ids=np.array([f"x{i}" for i in range(len(logits))]),
        labels=np.asarray(labels),
        logits=logits,
    )


def temperature(value: float = 1.0, *, at_limit: bool = False) -> Temperature:
    return Temperature(value=value, loss_before=1.0, loss_after=0.9, at_limit=at_limit)


def worst_case(state, broken_by=None, clean_correct=None, attacks=("FGSM",), threat=LINF, outside=None) -> WorstCase:
    """`broken_by` defaults to the first attack, and to a natural error where the clean image is wrong."""
    state = np.asarray(state)
    n = len(state)
    clean_correct = np.ones(n, dtype=bool) if clean_correct is None else np.asarray(clean_correct)
    broken_by = np.where(state == BROKEN, 0, NOT_BROKEN) if broken_by is None else np.asarray(broken_by)
    broken_by = np.where(clean_correct, broken_by, NATURAL_ERROR)
    return WorstCase(
        threat=threat,
        attacks=attacks,
        labels=np.zeros(n, dtype=int),
        clean_correct=clean_correct,
        state=np.where(clean_correct, state, BROKEN),
        broken_by=broken_by,
        adversarial_class=np.where(broken_by >= 0, 1, -1),
        adversarial_confidence=np.zeros(n),
        distance=np.zeros(n),
        nearest=np.where(broken_by == NOT_BROKEN, np.inf, 0.0),
        outside=np.zeros(n, dtype=bool) if outside is None else np.asarray(outside),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
        shown=(),
    )


def probe(broken, noise=(), *, n: int = 100, threat=LINF, epsilons=None) -> Probe:
    """`broken` are numbers of examples broken at each of `epsilons` (half, own, double and 0.5), `noise` rows that it breaks."""
    epsilons = (threat.epsilon / 2, threat.epsilon, 2 * threat.epsilon, 0.5) if epsilons is None else epsilons
    return Probe(
        threat=threat,
        attack="PGD-50",
        epsilons=epsilons,
        probed=np.ones(n, dtype=bool),
        by_epsilon=np.arange(n)[:, None] < np.asarray(broken)[None],
        noise=np.isin(np.arange(n), noise),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
    )


def gradient_probe(n: int = 100, threat=LINF, *, queries: int = 200, **columns) -> GradientProbe:
    """Sound gradients and attacks that break nothing but for the `columns` given: rows that are True, or whole arrays."""
    names = ("single_step", "doubled", "restarted", "queried", "unconfirmed", "zero_gradient", "moves")
    rows = {name: np.isin(np.arange(n), columns.pop(name, ())) for name in names}
    return GradientProbe(
        threat=threat,
        step_sizes=(0.1, 0.2),
        queries=queries,
        probed=np.ones(n, dtype=bool),
        standing=np.isin(np.arange(n), columns.pop("standing", np.arange(n))),
        promise_kept=columns.pop("promise_kept", np.ones((n, 2))),
        step_gain=columns.pop("step_gain", np.full(n, 9.0)),
        random_gain=columns.pop("random_gain", np.ones(n)),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
        **rows,
        **columns,
    )


def reference_attack(logits, labels, clean_correct=None, threat=LINF) -> ReferenceAttack:
    n = len(labels)
    columns = ("l0", "l2", "linf", "norm_l2", "norm_linf", "ssim", "psd", "psd_per_pixel")
    return ReferenceAttack(
        threat=threat,
        attack="PGD-40 margin",
        labels=np.asarray(labels),
        clean_correct=np.ones(n, dtype=bool) if clean_correct is None else np.asarray(clean_correct),
        adversarial_logits=np.asarray(logits, dtype=float),
        outside=np.zeros(n, dtype=bool),
        success_in_8_bits=np.zeros(n, dtype=bool),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
        **{name: np.zeros(n) for name in columns},
    )


def spectrum(sizes, margins=None, zero=None) -> FisherSpectrum:
    """Two classes at even odds, J J^T = diag(size, 0): lambda = size / 4 at T = 1. `margins` are used for every norm."""
    sizes = np.asarray(sizes, dtype=float)
    n = len(sizes)
    gram = np.zeros((n, 2, 2))
    gram[:, 0, 0] = sizes
    margins = np.zeros(n) if margins is None else np.asarray(margins, dtype=float)
    return FisherSpectrum(
        positions=np.arange(n),
        dimension=784,
        logits=np.zeros((n, 2)),
        gram=gram,
        temperature=1.0,
        **dict.fromkeys(("lambda_max", "trace", "lambda_max_raw", "trace_raw"), sizes / 4),
        **dict.fromkeys(("residual", "trace_error", "residual_raw", "trace_error_raw"), np.zeros(n)),
        shown=(),
        margin_linf=margins,
        margin_l2=margins,
        margin_l1=margins,
        zero_gradient=sizes == 0 if zero is None else np.asarray(zero),
    )


def lipschitz(constant: float, unknown: str = "") -> LipschitzBound:
    return LipschitzBound(positions=np.zeros(1, dtype=int), log_lipschitz=np.log([constant]), unknown=np.array([unknown]))


def estimate(values, *, standard_error: float = 0.0, step_error: float = 0.0, status=None) -> FisherEstimate:
    values = np.asarray(values, dtype=float)
    n = len(values)
    return FisherEstimate(
        positions=np.arange(n),
        dimension=784,
        directions=64,
        kind="orthogonal",
        lambda_max=values,
        trace=values,
        lambda_max_raw=values,
        trace_raw=values,
        standard_error=np.full(n, standard_error),
        lower_bound=values / 2,
        step=np.full(n, 1e-3),
        step_error=np.full(n, step_error),
        queries=np.full(n, 176),
        status=np.full(n, "measured", dtype="<U10") if status is None else np.asarray(status, dtype="<U10"),
    )
