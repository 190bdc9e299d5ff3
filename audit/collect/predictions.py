"""Clean outputs of every example."""

from __future__ import annotations

import numpy as np

from audit.attacks.run import Batch
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, Predictions
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Predictions:
    """Logits of the clean images; one-hot rows of a model that gives labels only.

    Raises:
        ModelError: the model's outputs are not finite, or not (n, K).
    """
    logits = classifier.logits(Batch.of(chunk, classifier.device).images)
    return Predictions(
        positions=chunk.positions,
        ids=np.asarray(chunk.ids, dtype=np.str_),
        labels=chunk.labels,
        logits=logits.double().cpu().numpy(),
        no_scores=classifier.lacks.get(Capability.SCORES),
    )


def clean(needed: EvidenceStore) -> Predictions:
    """The predictions among the evidence a collector was given."""
    return needed.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))
