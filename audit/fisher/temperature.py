"""The temperature that makes clean predictions most likely, so that sensitivities of differently confident models compare."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar

from audit.evidence import Floats, Ints, Temperature
from audit.fisher.spectrum import log_softmax

# Beyond these, probabilities are one-hot or uniform for any usual logits, and the fit has no meaning.
BOUNDS = (0.01, 100.0)


def negative_log_likelihood(logits: Floats, labels: Ints, temperature: float) -> float:
    """Mean of -log softmax(z / T)_y over the examples, in nats."""
    chosen = np.take_along_axis(log_softmax(logits, temperature), labels[:, None], axis=1)
    # An exact sum, so that the fit does not depend on the order of the examples.
    return abs(math.fsum(chosen[:, 0].tolist())) / len(chosen)


def fit_temperature(logits: Floats, labels: Ints) -> Temperature:
    """Minimise the negative log-likelihood over log T.

    `at_limit` is true when no temperature inside the bounds is better than a bound: every example right (T sinks without
    end), the model no better than chance (T grows), or likelihoods that do not depend on T (then T = 1).

    Args:
        logits: (n, K), n >= 1.
        labels: (n,) class indices.
    """
    before = negative_log_likelihood(logits, labels, 1.0)
    search = minimize_scalar(
        lambda log_t: negative_log_likelihood(logits, labels, math.exp(log_t)),
        bounds=(math.log(BOUNDS[0]), math.log(BOUNDS[1])),
        method="bounded",
        options={"xatol": 1e-7},
    )
    at_bounds = [(negative_log_likelihood(logits, labels, t), t) for t in BOUNDS]
    found = math.exp(float(search.x))
    # Bounds first: where a bound is as good as what the search found, the likelihood only flattens towards it.
    after, value = min([*at_bounds, (negative_log_likelihood(logits, labels, found), found)], key=lambda pair: pair[0])
    limits = [loss <= after for loss, _ in at_bounds]
    if all(limits):
        after, value = before, 1.0
    return Temperature(value=value, loss_before=before, loss_after=after, at_limit=any(limits))
