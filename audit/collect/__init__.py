"""Collectors: one top-level, picklable function per kind of evidence, run on one chunk of examples at a time.

`collect(classifier, chunk, settings, needed, threat)` returns the chunk's rows. `needed` holds the same rows of the evidence the
collector needs (and whole fits); `threat` is None where the evidence does not depend on one. A row's numbers depend on its
example only, never on the chunk. `COLLECTORS` and `FITS` declare the graph; `why_not` says in words what it does not support.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from audit.collect import accuracy_epsilon, fisher_estimate, fisher_spectrum, predictions, reference_attack, worst_case
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, Predictions, RowEvidence, Temperature
from audit.fisher.temperature import fit_temperature
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


class Collect(Protocol):
    """Gathers one kind of evidence on one chunk."""

    def __call__(
        self, classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
    ) -> RowEvidence:
        """Collect the rows of one chunk."""


class Fit(Protocol):
    """Computes one value from merged evidence."""

    def __call__(self, needed: EvidenceStore) -> Temperature:
        """Fit."""


@dataclass(frozen=True, kw_only=True)
class Collector:
    """One node of the graph. `needs_without_gradients` replaces `needs` for a classifier that lacks gradients.

    `reads` names every setting that `collect` reads (`profile.X` for one of the profile): changing another one leaves its evidence
    valid.
    """

    kind: Evidence
    per_threat: bool
    capabilities: frozenset[Capability]
    needs: frozenset[Evidence]
    collect: Collect
    reads: frozenset[str]
    needs_without_gradients: frozenset[Evidence] | None = None

    def needs_of(self, lacks: Mapping[Capability, str]) -> frozenset[Evidence]:
        """The kinds this collector needs for a classifier with these `lacks`."""
        if self.needs_without_gradients is not None and Capability.GRADIENTS in lacks:
            return self.needs_without_gradients
        return self.needs


@dataclass(frozen=True, kw_only=True)
class FitNode:
    """A value fitted to merged evidence, needed by collectors."""

    kind: Evidence
    capabilities: frozenset[Capability]
    needs: frozenset[Evidence]
    fit: Fit


def fit_clean_temperature(needed: EvidenceStore) -> Temperature:
    """The temperature of the merged clean predictions."""
    clean = needed.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))
    return fit_temperature(clean.logits, clean.labels)


_CLEAN = frozenset({Evidence.PREDICTIONS})
_LABELS = frozenset({Capability.LABELS})
_SCORES = frozenset({Capability.SCORES})
_GRADIENTS = frozenset({Capability.SCORES, Capability.GRADIENTS})

COLLECTORS: Mapping[Evidence, Collector] = {
    row.kind: row
    for row in (
        Collector(
            kind=Evidence.PREDICTIONS,
            per_threat=False,
            capabilities=_LABELS,
            needs=frozenset(),
            collect=predictions.collect,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.REFERENCE_ATTACK,
            per_threat=True,
            capabilities=_SCORES,
            needs=_CLEAN,
            collect=reference_attack.collect,
            reads=frozenset({"seed", "profile.reference_steps", "profile.reference_queries"}),
        ),
        Collector(
            kind=Evidence.WORST_CASE_WHITE_BOX,
            per_threat=True,
            capabilities=_GRADIENTS,
            needs=_CLEAN,
            collect=worst_case.collect_white_box,
            reads=frozenset({"seed", "profile.linf", "profile.l2", "profile.l1", "shown_failures", "keep_images"}),
        ),
        Collector(
            kind=Evidence.WORST_CASE_BLACK_BOX,
            per_threat=True,
            capabilities=_LABELS,
            needs=_CLEAN,
            collect=worst_case.collect_black_box,
            reads=frozenset({"seed", "profile.score_based", "profile.label_only", "shown_failures", "keep_images"}),
        ),
        Collector(
            kind=Evidence.ACCURACY_EPSILON,
            per_threat=True,
            capabilities=_LABELS,
            needs=_CLEAN | {Evidence.WORST_CASE_WHITE_BOX},
            needs_without_gradients=_CLEAN | {Evidence.WORST_CASE_BLACK_BOX},
            collect=accuracy_epsilon.collect,
            reads=frozenset({"seed", "profile.curve", "profile.curve_steps", "profile.curve_queries"}),
        ),
        Collector(
            kind=Evidence.FISHER_SPECTRUM,
            per_threat=False,
            capabilities=_GRADIENTS,
            needs=_CLEAN,
            collect=fisher_spectrum.collect,
            reads=frozenset({"profile.fisher_samples"}),
        ),
        Collector(
            kind=Evidence.FISHER_ESTIMATE,
            per_threat=False,
            capabilities=_SCORES,
            needs=_CLEAN | {Evidence.TEMPERATURE},
            collect=fisher_estimate.collect,
            reads=frozenset({"seed", "profile.fisher_samples", "profile.fisher_directions"}),
        ),
    )
}

FITS: Mapping[Evidence, FitNode] = {
    Evidence.TEMPERATURE: FitNode(kind=Evidence.TEMPERATURE, capabilities=_SCORES, needs=_CLEAN, fit=fit_clean_temperature)
}


def why_not(kind: Evidence, lacks: Mapping[Capability, str]) -> str | None:
    """Why this evidence cannot be gathered from a classifier with these `lacks`; None when it can.

    >>> why_not(Evidence.WORST_CASE_WHITE_BOX, {Capability.GRADIENTS: "ONNX Runtime has no backward pass"})
    'ONNX Runtime has no backward pass'
    """
    node = FITS[kind] if kind in FITS else COLLECTORS[kind]
    missing = next((capability for capability in sorted(node.capabilities) if capability in lacks), None)
    if missing is not None:
        return lacks[missing]
    needs = node.needs if isinstance(node, FitNode) else node.needs_of(lacks)
    return next((why for need in sorted(needs) if (why := why_not(need, lacks))), None)
