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
| neuron_profile | NeuronProfile, of images set apart | no | |
| neurons | Neurons | no | neuron profile |
| reference_attack | ReferenceAttack | yes | predictions |
| adversarial_neurons | AdversarialNeurons | yes | predictions, neuron profile; the reference attack's images |
| boundary_distance | BoundaryDistance | no | predictions |
| boundary_steps | BoundarySteps | no | probe sample |
| noise_response | NoiseResponse | yes | predictions |
| certification | Certification | no | predictions |
| minimal_perturbations | MinimalPerturbations | no | predictions |
| universal_perturbation | UniversalPerturbation, of images set apart | yes | |
| universal_effect | UniversalEffect | yes | predictions, universal perturbation |
| worst_case_white_box, worst_case_black_box | WorstCase | yes | predictions; gradient health for the first |
| accuracy_epsilon | AccuracyEpsilon | yes | predictions, a worst case |
| fisher_spectrum | FisherSpectrum | no | predictions, temperature |
| fisher_estimate | FisherEstimate | no | predictions, temperature |
| architecture_bound | LipschitzBound, one row | no | |
| corruptions | Corruptions | no | |
| sequences | Sequences | no | |
| reference_predictions, reference_corruptions, reference_sequences | as without `reference_` | no | the reference model |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from audit.evidence.arrays import Bools as Bools
from audit.evidence.arrays import Floats as Floats
from audit.evidence.arrays import Images as Images
from audit.evidence.arrays import Ints as Ints
from audit.evidence.arrays import Strings as Strings
from audit.evidence.attacks import BROKEN as BROKEN
from audit.evidence.attacks import NATURAL_ERROR as NATURAL_ERROR
from audit.evidence.attacks import NOT_BROKEN as NOT_BROKEN
from audit.evidence.attacks import SURVIVED as SURVIVED
from audit.evidence.attacks import UNKNOWN as UNKNOWN
from audit.evidence.attacks import AccuracyEpsilon as AccuracyEpsilon
from audit.evidence.attacks import ReferenceAttack as ReferenceAttack
from audit.evidence.attacks import ShownFailure as ShownFailure
from audit.evidence.attacks import WorstCase as WorstCase
from audit.evidence.boundary import BoundaryDistance as BoundaryDistance
from audit.evidence.boundary import BoundarySteps as BoundarySteps
from audit.evidence.boundary import MinimalPerturbations as MinimalPerturbations
from audit.evidence.boundary import NoiseResponse as NoiseResponse
from audit.evidence.boundary import UniversalEffect as UniversalEffect
from audit.evidence.boundary import UniversalPerturbation as UniversalPerturbation
from audit.evidence.certification import Certification as Certification
from audit.evidence.corruption import MADE_HERE as MADE_HERE
from audit.evidence.corruption import Corruptions as Corruptions
from audit.evidence.corruption import Sequences as Sequences
from audit.evidence.fisher import FisherEstimate as FisherEstimate
from audit.evidence.fisher import FisherSpectrum as FisherSpectrum
from audit.evidence.fisher import LipschitzBound as LipschitzBound
from audit.evidence.fisher import ShownDirection as ShownDirection
from audit.evidence.fisher import most_sensitive as most_sensitive
from audit.evidence.neurons import AdversarialNeurons as AdversarialNeurons
from audit.evidence.neurons import NeuronProfile as NeuronProfile
from audit.evidence.neurons import Neurons as Neurons
from audit.evidence.probe import GradientHealth as GradientHealth
from audit.evidence.probe import GradientProbe as GradientProbe
from audit.evidence.probe import Probe as Probe
from audit.evidence.probe import ProbeSample as ProbeSample
from audit.vocabulary import Threat


class Evidence(StrEnum):
    """The kinds of evidence; a metric's parameter names are these values."""

    PREDICTIONS = "predictions"
    TEMPERATURE = "temperature"
    PROBE_SAMPLE = "probe_sample"
    PROBE = "probe"
    GRADIENT_PROBE = "gradient_probe"
    GRADIENT_HEALTH = "gradient_health"
    NEURON_PROFILE = "neuron_profile"
    NEURONS = "neurons"
    REFERENCE_ATTACK = "reference_attack"
    ADVERSARIAL_NEURONS = "adversarial_neurons"
    WORST_CASE_WHITE_BOX = "worst_case_white_box"
    WORST_CASE_BLACK_BOX = "worst_case_black_box"
    ACCURACY_EPSILON = "accuracy_epsilon"
    FISHER_SPECTRUM = "fisher_spectrum"
    FISHER_ESTIMATE = "fisher_estimate"
    ARCHITECTURE_BOUND = "architecture_bound"
    BOUNDARY_DISTANCE = "boundary_distance"
    BOUNDARY_STEPS = "boundary_steps"
    NOISE_RESPONSE = "noise_response"
    CERTIFICATION = "certification"
    MINIMAL_PERTURBATIONS = "minimal_perturbations"
    UNIVERSAL_PERTURBATION = "universal_perturbation"
    UNIVERSAL_EFFECT = "universal_effect"
    CORRUPTIONS = "corruptions"
    SEQUENCES = "sequences"
    REFERENCE_PREDICTIONS = "reference_predictions"
    REFERENCE_CORRUPTIONS = "reference_corruptions"
    REFERENCE_SEQUENCES = "reference_sequences"


# What the reference model gave, as the evidence of a model that is compared with it.
OF_REFERENCE: Mapping[Evidence, Evidence] = {
    Evidence.REFERENCE_PREDICTIONS: Evidence.PREDICTIONS,
    Evidence.REFERENCE_CORRUPTIONS: Evidence.CORRUPTIONS,
    Evidence.REFERENCE_SEQUENCES: Evidence.SEQUENCES,
}
_ATTACKED = frozenset(
    {
        *(Evidence.REFERENCE_ATTACK, Evidence.ADVERSARIAL_NEURONS, Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX),
        *(Evidence.ACCURACY_EPSILON, Evidence.NOISE_RESPONSE, Evidence.UNIVERSAL_EFFECT),
    }
)
# Gathered on every example; the cost of the other kinds does not grow with the sample.
ON_EVERY_EXAMPLE = _ATTACKED | {Evidence.NEURONS}
PER_THREAT = _ATTACKED | {Evidence.UNIVERSAL_PERTURBATION, Evidence.PROBE, Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH}
# Gathered on images set apart from the sample, where there are any.
SET_APART = frozenset({Evidence.NEURON_PROFILE, Evidence.UNIVERSAL_PERTURBATION})
# Of these, what needs its images all at once.
AT_ONCE = frozenset({Evidence.UNIVERSAL_PERTURBATION})


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


# What is joined by its own rule, since it does not have one row per example.
Summed = NeuronProfile | Neurons | AdversarialNeurons
ByExample = Predictions | Probe | GradientProbe | ReferenceAttack | WorstCase | AccuracyEpsilon | FisherSpectrum | FisherEstimate
Boundary = (
    BoundaryDistance
    | BoundarySteps
    | NoiseResponse
    | Certification
    | MinimalPerturbations
    | UniversalPerturbation
    | UniversalEffect
)
RowEvidence = ByExample | Boundary | Corruptions | Sequences | Summed | LipschitzBound
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


def merge(given: Iterable[RowEvidence]) -> RowEvidence:
    """Join the parts of consecutive chunks, given in canonical order: arrays and `shown` are concatenated, the rest must agree.

    What has no row per example is summed up as it comes, so that memory holds two parts.
    """
    arriving = iter(given)
    first = next(arriving)
    if isinstance(first, Summed):
        return reduce(lambda before, part: before.joined(part), arriving, first)
    parts = [first, *arriving]
    joined: dict[str, Any] = {}
    for field in fields(first):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], np.ndarray):
            joined[field.name] = np.concatenate(values, axis=0)
        elif field.name == "shown":
            shown = tuple(example for value in values for example in value)
            joined[field.name] = most_sensitive(shown) if isinstance(first, FisherSpectrum) else shown
        elif any(value != values[0] for value in values):
            raise ValueError(f"chunks disagree on {type(first).__name__}.{field.name}: {values}")
        else:
            joined[field.name] = values[0]
    return replace(first, **joined)


def rows(evidence: RowEvidence, start: int, stop: int) -> RowEvidence:
    """The rows [start, stop) of merged evidence, as a chunk sees them; all of what has no rows."""
    if isinstance(evidence, NeuronProfile | Neurons | UniversalPerturbation):
        return evidence
    cut: dict[str, Any] = {
        field.name: value[start:stop] if isinstance(value := getattr(evidence, field.name), np.ndarray) else value
        for field in fields(evidence)
    }
    return replace(evidence, **cut)
