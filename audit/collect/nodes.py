"""The nodes of the graph of evidence: collectors, which gather a kind chunk by chunk, and fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from audit.data import Chunk
from audit.evidence import Evidence, EvidenceStore, Fitted, RowEvidence
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
    """Computes one value from merged evidence; `threat` is None where it does not depend on one."""

    def __call__(self, needed: EvidenceStore, threat: Threat | None) -> Fitted:
        """Fit."""


class CollectTwo(Protocol):
    """Gathers two kinds of evidence on one chunk at the price of one."""

    def __call__(
        self, classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
    ) -> tuple[RowEvidence, RowEvidence]:
        """Collect the rows of one chunk, of the collector's own kind first."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Another kind of evidence, which can be had on the way."""

    kind: Evidence
    collect: CollectTwo


@dataclass(frozen=True, kw_only=True)
class Collector:
    """One node of the graph. `needs_without_gradients` replaces `needs` for a classifier that lacks gradients.

    `beside` names what an engine may gather with it: the same evidence that the other kind's own collector gathers.

    `reads` names every setting that `collect` reads (`profile.X` for one of the profile): changing another one leaves its evidence
    valid.
    """

    kind: Evidence
    capabilities: frozenset[Capability]
    needs: frozenset[Evidence]
    collect: Collect
    reads: frozenset[str]
    needs_without_gradients: frozenset[Evidence] | None = None
    beside: Beside | None = None

    def needs_of(self, lacks: Mapping[Capability, str]) -> frozenset[Evidence]:
        """The kinds this collector needs for a classifier with these `lacks`."""
        if self.needs_without_gradients is not None and Capability.GRADIENTS in lacks:
            return self.needs_without_gradients
        return self.needs


@dataclass(frozen=True, kw_only=True)
class FitNode:
    """A value fitted to merged evidence, needed by collectors: what they gather depends on its `relied_on` alone."""

    kind: Evidence
    capabilities: frozenset[Capability]
    needs: frozenset[Evidence]
    fit: Fit
