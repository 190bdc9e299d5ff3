"""What both public functions are given: images, outputs, a temperature; checked, so that a wrong one is an error and never 0."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import torch
from scipy.optimize import brentq

from audit.errors import InputError, ModelError
from audit.evidence import Floats
from audit.fisher.spectrum import log_softmax
from audit.fisher.temperature import BOUNDS, fit_temperature

Array: TypeAlias = "np.ndarray | torch.Tensor"

# Without labels: the mean entropy to which a temperature is fitted, as a share of that of even odds.
ENTROPY_SHARE = 0.1
# Two answers to one image may differ by this much in probability.
MOST_DIFFERENCE = 1e-4
_OUTSIDE = 1e-6


def images_of(inputs: Array) -> torch.Tensor:
    """The images (n, c, h, w), in the precision they were given in, float32 or float64.

    Raises:
        InputError: another shape, none at all, or values that are not finite or outside [0, 1].
    """
    images = torch.as_tensor(inputs)
    images = images if images.dtype == torch.float64 else images.float()
    if images.ndim != 4 or not len(images):
        raise InputError(f"inputs have the shape {tuple(images.shape)}; give images (n, c, h, w), at least one")
    if not bool(images.isfinite().all()):
        raise InputError("inputs hold values that are not finite; give images in [0, 1]")
    low, high = float(images.min()), float(images.max())
    if low < -_OUTSIDE or high > 1 + _OUTSIDE:
        raise InputError(
            f"inputs range from {low:.3g} to {high:.3g}; give images in [0, 1] and let the model scale and normalise them, "
            "since eigenvalues are per squared unit of that range"
        )
    return images


def check_repeatable(first: Floats, second: Floats) -> None:
    """Refuse a model whose two answers (n, K), as logits, to the same images differ.

    Raises:
        ModelError: they differ by more than 1e-4 in probability.
    """
    difference = float(np.abs(np.exp(log_softmax(first)) - np.exp(log_softmax(second))).max())
    if difference > MOST_DIFFERENCE:
        raise ModelError(
            f"the model answers at random: two calls with the same images differ by {difference:.2g} in probability; switch off "
            "dropout and random preprocessing (model.eval()), or average its answers"
        )


def temperature_of(logits: Floats, labels: Array | None, stated: float | None) -> float:
    """The temperature stated; else the one fitted by likelihood to the labels; else the one that gives a mean entropy of 0.1 ln K.

    Raises:
        InputError: it is not positive, labels do not fit, or no temperature can be fitted.
    """
    if stated is not None:
        if not (math.isfinite(stated) and stated > 0):
            raise InputError(f"temperature {stated} is not a positive number")
        return float(stated)
    if labels is None:
        return entropy_matched_temperature(logits)
    classes = np.asarray(labels)
    if classes.shape != (len(logits),) or classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= logits.shape[1]:
        raise InputError(f"labels must be {len(logits)} class numbers from 0 to {logits.shape[1] - 1}, one per image")
    fitted = fit_temperature(logits, classes.astype(np.int64))
    if fitted.at_limit:
        raise InputError(
            "no temperature can be fitted to these labels (every answer right, or none better than chance); give more images, "
            "leave out the labels to match the entropy, or state temperature=1"
        )
    return fitted.value


def entropy_matched_temperature(logits: Floats, share: float = ENTROPY_SHARE) -> float:
    """The T at which the mean entropy of softmax(z / T) over the examples is `share` of ln K, so that equally sure models compare.

    Raises:
        InputError: no temperature within the search bounds gives it.

    >>> round(entropy_matched_temperature(np.array([[3.0, 0.0]])) * math.log(1 / 0.013 - 1), 1)
    3.0
    """
    target = share * math.log(logits.shape[1])

    def excess(log_t: float) -> float:
        log_p = log_softmax(logits, math.exp(log_t))
        return float(-(np.exp(log_p) * log_p).sum(axis=1).mean()) - target

    low, high = (math.log(bound) for bound in BOUNDS)
    if excess(low) >= 0 or excess(high) <= 0:
        raise InputError(
            f"no temperature from {BOUNDS[0]} to {BOUNDS[1]:g} gives a mean entropy of {target:.3g} nats: the outputs are nearly "
            "even, or one-hot beyond that; state temperature=1"
        )
    return math.exp(float(brentq(excess, low, high, xtol=1e-10)))
