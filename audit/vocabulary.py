"""The fixed words of an audit: capabilities, families, directions, units, norms and threats.

Every other module speaks in these terms, so nothing here imports anything of the project.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from audit.errors import InputError

# Why a model that may well have gradients was audited without them.
BLACK_BOX_ASKED = "an audit by queries only was asked for (--black-box)"


class Capability(StrEnum):
    """What a classifier may or may not be able to do; `Classifier.lacks` maps the missing ones to a reason."""

    LABELS = "labels"
    SCORES = "scores"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    REFERENCE = "reference"
    PROFILE_DATA = "profile_data"
    SURROGATE = "surrogate"


class Family(StrEnum):
    """Groups of metrics, in report order; the value is the heading a reader sees."""

    TASK = "Task performance"
    ADVERSARIAL = "Under attack"
    IMPERCEPTIBILITY = "Size of the change"
    FISHER = "Sensitivity without an attack"
    NEURONS = "Inside the network"
    BOUNDARY = "Distance to the boundary"
    CERTIFICATION = "Certified by smoothing"
    CORRUPTION = "Under corruptions"
    STABILITY = "Along sequences"
    COMPARISON = "Beside the reference"
    CALIBRATION = "Confidence"


class Better(StrEnum):
    """The model owner's side. `NEITHER` describes the test set or the attack and ranks nothing."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Unit(StrEnum):
    """What a number is measured in. `SHARE` is a fraction of images in [0, 1], shown in percent; `POINTS` a difference of two."""

    SHARE = "share"
    POINTS = "share difference"
    PROBABILITY = "probability"
    RATIO = "ratio"
    PIXELS = "pixel range"
    SSIM = "SSIM"
    SENSITIVITY = "sum"
    PER_PIXEL_SQUARED = "1/pixel range²"
    NATS_PER_PIXEL = "nats/pixel range"
    TEMPERATURE = "temperature"
    RANK = "rank"
    POWERS_OF_TEN = "power of ten"
    NATS = "nats"


class Norm(StrEnum):
    """The norm of a perturbation, always over [0, 1] pixel units."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"

    @property
    def label(self) -> str:
        """The norm as a reader sees it: `L∞`, `L2`, `L1`."""
        return {"linf": "L∞", "l2": "L2", "l1": "L1"}[self.value]


_THREAT = re.compile(r"^(?P<norm>linf|l2|l1):(?P<epsilon>\d+(?:\.\d+)?(?:/\d+(?:\.\d+)?)?)$")


@dataclass(frozen=True, kw_only=True)
class Threat:
    """A norm and a budget epsilon in [0, 1] pixel units, as in `linf:8/255`.

    `written` keeps the user's own spelling of epsilon, so that 8/255 stays 8/255 in keys and reports.
    """

    norm: Norm
    epsilon: float
    written: str

    @classmethod
    def parse(cls, text: str) -> Threat:
        """Read `norm:epsilon`, e.g. `linf:8/255` or `l2:0.5`.

        Raises:
            InputError: the text is not of that form, or epsilon is outside [0, 1] for Linf.

        >>> Threat.parse("linf:8/255").key
        'linf_8-255'
        """
        match = _THREAT.match(text.strip().lower())
        if match is None:
            raise InputError(
                f"threat {text!r} is not of the form norm:epsilon; write for example linf:8/255 or l2:0.5 "
                "(norms: linf, l2, l1; epsilon in [0, 1] pixel units)"
            )
        written = match["epsilon"]
        numerator, _, denominator = written.partition("/")
        if denominator and float(denominator) == 0:
            raise InputError(f"threat {text!r} divides by zero; write for example linf:8/255")
        epsilon = float(numerator) / float(denominator) if denominator else float(numerator)
        norm = Norm(match["norm"])
        if not math.isfinite(epsilon) or (norm is Norm.LINF and epsilon > 1):
            raise InputError(
                f"threat {text!r} has epsilon {epsilon:g}, outside [0, 1]; pixels are in [0, 1], so 8 grey levels are 8/255"
            )
        return cls(norm=norm, epsilon=epsilon, written=written)

    def at(self, epsilon: float) -> Threat:
        """The same norm at another budget, spelled in 1/255 for Linf and as a decimal otherwise."""
        written = f"{epsilon * 255:.10g}/255" if self.norm is Norm.LINF else f"{epsilon:.10g}"
        return Threat(norm=self.norm, epsilon=epsilon, written=written)

    @property
    def budget(self) -> tuple[Norm, float]:
        """What makes two threats the same one, however they are spelled: 0.1 and 1/10 are one budget."""
        return self.norm, self.epsilon

    @property
    def key(self) -> str:
        """The threat inside a metric key; MLflow refuses `:` ambiguities and `=`: `linf_8-255`."""
        return f"{self.norm.value}_{self.written.replace('/', '-')}"

    @property
    def label(self) -> str:
        """The threat as a reader sees it: `L∞ 8/255`."""
        return f"{self.norm.label} {self.written}"

    def __str__(self) -> str:
        return f"{self.norm.value}:{self.written}"
