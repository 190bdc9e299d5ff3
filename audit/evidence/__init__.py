"""What an audit observes, before any of it becomes a number.

Per-example columns are the rule: the first axis of every array is examples in canonical order, and `merge` joins the parts of
several chunks. Evidence holds no images except the few failures that will be shown. Arrays are numpy, values float64.

| kind | class | per threat | needs |
|---|---|---|---|
| predictions | Predictions | no | |
| temperature | Temperature (a fit) | no | predictions |
| probe_sample | ProbeSample (a fit) | no | predictions |
| probe | Probe | yes | probe sample |
| gradient_probe | GradientProbe | yes | probe sample, probe |
| gradient_health | GradientHealth (a fit) | yes | gradient probe |
| reference_attack | ReferenceAttack | yes | predictions |
| worst_case_white_box, worst_case_black_box | WorstCase | yes | predictions; gradient health for the first |
| accuracy_epsilon | AccuracyEpsilon | yes | predictions, a worst case |
| fisher_spectrum | FisherSpectrum | no | predictions |
| fisher_estimate | FisherEstimate | no | predictions, temperature |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np

from audit.evidence.arrays import Bools as Bools
from audit.evidence.arrays import Floats as Floats
from audit.evidence.arrays import Images as Images
from audit.evidence.arrays import Ints as Ints
from audit.evidence.arrays import Strings as Strings
from audit.evidence.fisher import FisherEstimate as FisherEstimate
from audit.evidence.fisher import FisherSpectrum as FisherSpectrum
from audit.evidence.probe import GradientHealth as GradientHealth
from audit.evidence.probe import GradientProbe as GradientProbe
from audit.evidence.probe import Probe as Probe
from audit.evidence.probe import ProbeSample as ProbeSample
from audit.vocabulary import Threat

BROKEN, SURVIVED, UNKNOWN = 0, 1, 2
NATURAL_ERROR = -1
NOT_BROKEN = -2


class Evidence(StrEnum):
    """The kinds of evidence; a metric's parameter names are these values."""

    PREDICTIONS = "predictions"
    TEMPERATURE = "temperature"
    PROBE_SAMPLE = "probe_sample"
    PROBE = "probe"
    GRADIENT_PROBE = "gradient_probe"
    GRADIENT_HEALTH = "gradient_health"
    REFERENCE_ATTACK = "reference_attack"
    WORST_CASE_WHITE_BOX = "worst_case_white_box"
    WORST_CASE_BLACK_BOX = "worst_case_black_box"
    ACCURACY_EPSILON = "accuracy_epsilon"
    FISHER_SPECTRUM = "fisher_spectrum"
    FISHER_ESTIMATE = "fisher_estimate"


# Gathered on every example; the cost of the other kinds does not grow with the sample.
ON_EVERY_EXAMPLE = frozenset(
    {Evidence.REFERENCE_ATTACK, Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX, Evidence.ACCURACY_EPSILON}
)
PER_THREAT = ON_EVERY_EXAMPLE | {Evidence.PROBE, Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH}


@dataclass(frozen=True, kw_only=True)
class EvidenceKey:
    """A kind of evidence and, where it depends on one, the threat it was gathered under."""

    kind: Evidence
    threat: Threat | None = None

    def __str__(self) -> str:
        return self.kind.value if self.threat is None else f"{self.kind.value}/{self.threat.key}"


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Clean outputs. `logits` (n, K): log-probabilities where the model gives probabilities; `positions` (n,) in the sample.

    Where `no_scores` says why the model gives none, `logits` are one-hot rows: their largest entry is the answered class, and
    nothing else may be read from them.
    """

    positions: Ints
    ids: Strings
    labels: Ints
    logits: Floats
    no_scores: str | None = None

    @property
    def predicted(self) -> Ints:
        """The class with the largest logit, (n,)."""
        return np.asarray(self.logits.argmax(axis=1), dtype=np.int64)

    @property
    def correct(self) -> Bools:
        """Whether the prediction is the label, (n,)."""
        return np.asarray(self.predicted == self.labels)


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """The temperature fitted to the clean predictions by negative log-likelihood; `at_limit` when the search hit its bound."""

    value: float
    loss_before: float
    loss_after: float
    at_limit: bool

    @property
    def relied_on(self) -> object:
        """What evidence that needs this fit depends on."""
        return self.value


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


RowEvidence = Predictions | Probe | GradientProbe | ReferenceAttack | WorstCase | AccuracyEpsilon | FisherSpectrum | FisherEstimate
Fitted = Temperature | ProbeSample | GradientHealth
AnyEvidence = RowEvidence | Fitted
E = TypeVar("E")


class EvidenceStore(Mapping[EvidenceKey, AnyEvidence]):
    """Evidence by key, read-only to those who receive it; `get_as` narrows the type."""

    def __init__(self, items: Mapping[EvidenceKey, AnyEvidence] | None = None) -> None:
        self._items: dict[EvidenceKey, AnyEvidence] = dict(items or {})

    def __getitem__(self, key: EvidenceKey) -> AnyEvidence:
        return self._items[key]

    def __iter__(self) -> Iterator[EvidenceKey]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def with_item(self, key: EvidenceKey, value: AnyEvidence) -> EvidenceStore:
        """A new store with one more item."""
        return EvidenceStore({**self._items, key: value})

    def get_as(self, kind: type[E], key: EvidenceKey) -> E:
        """The evidence at `key`, known to be of `kind`."""
        value = self._items[key]
        if not isinstance(value, kind):
            raise TypeError(f"evidence {key} is a {type(value).__name__}, not a {kind.__name__}")
        return value


def merge(parts: Sequence[RowEvidence]) -> RowEvidence:
    """Join the parts of consecutive chunks, given in canonical order: arrays and `shown` are concatenated, the rest must agree."""
    first = parts[0]
    joined: dict[str, Any] = {}
    for field in fields(first):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[field.name] = np.concatenate(values, axis=0)
        elif field.name == "shown":
            joined[field.name] = tuple(failure for value in values for failure in value)
        elif any(value != values[0] for value in values):
            raise ValueError(f"chunks disagree on {type(first).__name__}.{field.name}: {values}")
        else:
            joined[field.name] = values[0]
    return replace(first, **joined)


def rows(evidence: RowEvidence, start: int, stop: int) -> RowEvidence:
    """The rows [start, stop) of merged evidence, as a chunk sees them."""
    cut: dict[str, Any] = {
        field.name: value[start:stop] if isinstance(value := getattr(evidence, field.name), np.ndarray) else value
        for field in fields(evidence)
    }
    return replace(evidence, **cut)
