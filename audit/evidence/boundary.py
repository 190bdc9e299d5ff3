"""How far the decision boundary is, and how much the loss moves in noise."""

from __future__ import annotations

from dataclasses import dataclass

from audit.evidence.arrays import Bools, Floats, Ints
from audit.vocabulary import Threat


@dataclass(frozen=True, kw_only=True)
class BoundaryDistance:
    """The nearest change of label along random directions, for the first clean-correct examples at `positions` (m,).

    `distance` (m,) is a root mean square over the values of an image; where the search is `censored` (m,) it is the distance up to
    which nothing was found. `directions` of each example were followed both ways.
    """

    positions: Ints
    directions: int
    distance: Floats
    censored: Bools
    queries: Ints


@dataclass(frozen=True, kw_only=True)
class BoundarySteps:
    """The nearest change of label that sign steps towards other classes find, for the clean-correct examples at `positions` (m,).

    `distance` (m,) is in Linf; where the search is `censored` (m,) it is the distance up to which nothing was found. Per example of
    the chunk: passes (n,).
    """

    positions: Ints
    targets: int
    distance: Floats
    censored: Bools
    forward_passes: Ints
    backward_passes: Ints


@dataclass(frozen=True, kw_only=True)
class NoiseResponse:
    """Mean over noisy copies of |loss change| / Linf distance, `ratio` (n,), at a Linf threat; empty at another.

    `copies` were drawn of each, and `answered` (n,) of them by the model; 0 is the ratio where none was. `floored` (n,) of them,
    the image itself included, met the floor of probabilities.
    """

    threat: Threat
    copies: int
    ratio: Floats
    answered: Ints
    floored: Ints
    forward_passes: Ints
    backward_passes: Ints
