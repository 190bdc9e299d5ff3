"""The paired bootstrap of a difference of means, which has a t-test to be held against."""

from __future__ import annotations

import numpy as np

from audit.statistics import Tested, paired_bootstrap


def mean_difference(first: np.ndarray, second: np.ndarray) -> Tested | None:
    """Of mean(first) - mean(second) over the same examples, both (n,)."""
    return paired_bootstrap(first, second, lambda a, b: np.asarray((a - b).mean(axis=-1)))
