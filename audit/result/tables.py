"""What the report shows of one model beside its metrics: curves, tables and examples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """Accuracy at one epsilon of the accuracy-epsilon curve; shares in [0, 1]."""

    epsilon: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The accuracy-epsilon curve of one threat's norm; `arm` says which attacks it rests on."""

    norm: str
    threat: str
    arm: str
    samples: int
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class CertifiedPoint:
    """Share of the examples certified for their label at one L2 radius, with its interval; shares in [0, 1]."""

    radius: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CertifiedCurve:
    """Certified accuracy of the smoothed classifier against the L2 radius in pixel range, on `samples` examples.

    `sigma`, `looked`, `drawn` and `alpha` as in the evidence; `abstained` is the share without an answer, `average_radius` counts 0
    where nothing is certified. `right_in_noise` is the share of noisy copies that the model itself gets right, `right_clean` the
    share of these images that it gets right without noise.
    """

    sigma: float
    looked: int
    drawn: int
    alpha: float
    samples: int
    abstained: float
    average_radius: float
    right_in_noise: float
    right_clean: float
    points: tuple[CertifiedPoint, ...]


@dataclass(frozen=True, kw_only=True)
class AttackStage:
    """One attack of a cascade: it sees only the survivors of the one before. Passes are means per image it saw."""

    attack: str
    images_in: int
    broken: int


@dataclass(frozen=True, kw_only=True)
class Cascade:
    """Which attack broke how many at one threat; `arm` is white-box or black-box, `escalated` why gradients were not believed."""

    arm: str
    threat: str
    samples: int
    natural_errors: int
    unknown: int
    survivors: int
    forward_passes_per_image: float
    backward_passes_per_image: float
    stages: tuple[AttackStage, ...]
    escalated: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClassRow:
    """Clean and worst-case accuracy of one class or slice; shares in [0, 1]. `robust` is None when no arm was measured."""

    name: str
    samples: int
    clean: float | None
    robust: float | None
    robust_low: float | None
    robust_high: float | None
    taken_for: str | None


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """One inner layer: its neurons, how many never moved in the profile, and its part in NS (first threat) and NU.

    Relative to the layer's own size, and absolute; None where the layer is silent or nothing was attacked.
    """

    name: str
    neurons: int
    dead: int
    sensitivity: float | None
    sensitivity_absolute: float | None
    uncertainty: float | None
    uncertainty_absolute: float | None


@dataclass(frozen=True, kw_only=True)
class FailureExample:
    """One broken example; image paths relative to the result folder, None under `--no-images`, confidences None without scores."""

    example_id: str
    label: str
    clean_confidence: float | None
    adversarial_label: str
    adversarial_confidence: float | None
    attack: str
    arm: str
    threat: str
    norm: str
    distance: float
    clean_image: str | None = None
    adversarial_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class CorruptionRow:
    """Shares of wrong answers under one kind at severities 1 to 5 with their intervals; `averaged` when it enters the means."""

    kind: str
    averaged: bool
    errors: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CorruptionTable:
    """Errors under corruptions on `samples` images, whose clean error is `clean_error`; `source` says who corrupted them."""

    samples: int
    clean_error: float
    source: str
    rows: tuple[CorruptionRow, ...]


@dataclass(frozen=True, kw_only=True)
class CorruptionExample:
    """One image that is right as it is and wrong when corrupted; paths and confidence are None as in a `FailureExample`."""

    example_id: str
    label: str
    kind: str
    severity: int
    answered: str
    confidence: float | None
    clean_image: str | None = None
    corrupted_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class SensitiveExample:
    """An example of large lambda_max at the fitted temperature, in 1 / pixel range²; `status` is exact, iterated or estimated.

    `confidence` is the raw outputs' and None without scores. Paths are None as in a `FailureExample`, and of an estimate from
    queries, which has no direction. In the direction's image mid-grey is 0, and the largest entry in size is turned to be positive.
    """

    example_id: str
    label: str
    predicted: str
    confidence: float | None
    lambda_max: float
    effective_rank: float
    status: str
    clean_image: str | None = None
    direction_image: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Answers of similar confidence: their mean confidence, and how many of them are right, with an interval."""

    confidence: float
    accuracy: float
    low: float
    high: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """A reliability diagram; `images` says of which: clean, corrupted, or adversarial with the threat."""

    images: str
    bins: tuple[ReliabilityBin, ...]
