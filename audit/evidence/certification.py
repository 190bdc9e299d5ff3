"""What a smoothed classifier answers: counts over Gaussian noise."""

from __future__ import annotations

from dataclasses import dataclass

from audit.evidence.arrays import Bools, Ints


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Answers to noisy copies of the first examples of the sample, at `positions` (m,).

    `top` (m,) is the class that most of the first `looked` copies got; `agreed` (m,) of `drawn` further ones got it too, and
    `right` (m,) of those the label. `clean` (m,) says whether the image itself is answered with the label. `sigma` is the standard
    deviation of the noise in pixel range, `alpha` the probability with which one certificate may be false.
    """

    sigma: float
    alpha: float
    looked: int
    drawn: int
    positions: Ints
    labels: Ints
    top: Ints
    agreed: Ints
    right: Ints
    clean: Bools
    queries: Ints
