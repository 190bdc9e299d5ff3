"""Answers to corrupted images and along perturbation sequences, of the first examples of the sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audit.evidence.arrays import Bools, Floats, Ints, Probabilities

# Where this tool corrupted the images itself, and did not find them in a folder.
MADE_HERE = "made here"


@dataclass(frozen=True, kw_only=True)
class Corruptions:
    """What the model answered to m examples under c kinds of corruption at five severities.

    `positions` (m,) in the sample, `correct` (m, c, 5) and `predicted` (m, c, 5) the answers, `confidence` (m, c, 5) the
    probability of the answer and `true_confidence` (m, c, 5) that of the label, `distance` (m, c, 5) the mean absolute change of a
    pixel value in [0, 1]. `probabilities` (r, c, 5, K) float32 are whole answers of the first r <= m examples, as many as memory
    holds. `left_out` are published kinds that change nothing about such images or are not in the folder, `left_out_because` why.
    `source` says in words where the corrupted images came from. Where `no_scores` says why the model gives none, confidences are 1
    or 0.
    """

    positions: Ints
    kinds: tuple[str, ...]
    correct: Bools
    predicted: Ints
    confidence: Floats
    true_confidence: Floats
    probabilities: Probabilities
    distance: Floats
    left_out: tuple[str, ...] = ()
    left_out_because: tuple[str, ...] = ()
    source: str = ""
    no_scores: str | None = None

    @property
    def error(self) -> Floats:
        """1 where the answer is wrong, (m, c, 5)."""
        return 1.0 - self.correct.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """How often the answer to m examples changed along the `frames` of each of f families: `flips` (m, f), at most frames - 1.

    Frames of noise are compared with the first one, the others with the one before. `positions` (m,) in the sample.
    """

    positions: Ints
    families: tuple[str, ...]
    frames: int
    flips: Ints

    @property
    def flip_share(self) -> Floats:
        """The share of the comparisons in which the answer differs, (m, f)."""
        return self.flips / float(self.frames - 1)
