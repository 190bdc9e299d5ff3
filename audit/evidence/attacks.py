"""What attacks found, one row per example: the reference attack, the worst case of an arm, the accuracy-epsilon curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audit.evidence.arrays import Bools, Floats, Images, Ints
from audit.vocabulary import Threat

BROKEN, SURVIVED, UNKNOWN = 0, 1, 2
NATURAL_ERROR = -1
NOT_BROKEN = -2


@dataclass(frozen=True, kw_only=True)
class ReferenceAttack:
    """One named attack at full budget on every clean-correct example, no early stop, strongest iterate kept.

    `adversarial_logits` (n, K) are the clean logits where the example was not clean-correct. Distances (n,) are of x' - x:
    `l0` is the share of values changed after rounding to 8 bits, `norm_l2` and `norm_linf` that of x itself.
    `psd` sums |delta| / max(local standard deviation, tau), `psd_per_pixel` is its mean. `outside` marks an x' that left the
    ball or [0, 1] before the harness clipped it; `success_in_8_bits` a success that is one still, inside the ball, when each
    pixel of x' is moved towards x to a multiple of 1/255.
    """

    threat: Threat
    attack: str
    labels: Ints
    clean_correct: Bools
    adversarial_logits: Floats
    l0: Floats
    l2: Floats
    linf: Floats
    norm_l2: Floats
    norm_linf: Floats
    ssim: Floats
    psd: Floats
    psd_per_pixel: Floats
    outside: Bools
    success_in_8_bits: Bools
    forward_passes: Ints
    backward_passes: Ints

    @property
    def success(self) -> Bools:
        """S: clean-correct and wrong under the attack, (n,)."""
        return np.asarray(self.clean_correct & (self.adversarial_logits.argmax(axis=1) != self.labels))


@dataclass(frozen=True, kw_only=True)
class ShownFailure:
    """One broken example with its images (c, h, w), float32 in [0, 1], kept because the report shows it."""

    position: int
    clean: Images
    adversarial: Images


@dataclass(frozen=True, kw_only=True)
class WorstCase:
    """The per-example worst case over the attacks of one arm at one threat.

    `state` (n,) is BROKEN, SURVIVED or UNKNOWN; a clean-wrong example is BROKEN by NATURAL_ERROR. `broken_by` (n,) indexes
    `attacks`. Adversarial class, confidence and distance (in the threat's norm) are those of the broken examples, else -1 and 0.
    `nearest` (n,) is the distance of the nearest error that was met, also outside the ball: infinite where none was.
    """

    threat: Threat
    attacks: tuple[str, ...]
    labels: Ints
    clean_correct: Bools
    state: Ints
    broken_by: Ints
    adversarial_class: Ints
    adversarial_confidence: Floats
    distance: Floats
    nearest: Floats
    outside: Bools
    forward_passes: Ints
    backward_passes: Ints
    shown: tuple[ShownFailure, ...]

    @property
    def robust(self) -> Bools:
        """Correct on the clean image and unbroken; UNKNOWN counts as not robust, (n,)."""
        return np.asarray(self.state == SURVIVED)


@dataclass(frozen=True, kw_only=True)
class AccuracyEpsilon:
    """Whether each example survives at each of `epsilons` (ascending, the first 0): `robust` (n, E)."""

    threat: Threat
    epsilons: tuple[float, ...]
    arm: str
    robust: Bools
    forward_passes: Ints
    backward_passes: Ints
