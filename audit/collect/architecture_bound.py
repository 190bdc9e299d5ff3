"""What the architecture allows at most, once per model."""

from __future__ import annotations

import math

import numpy as np

from audit.data import Chunk
from audit.errors import MissingCapability
from audit.evidence import EvidenceStore, LipschitzBound
from audit.fisher import bounds
from audit.models import Classifier
from audit.models.architecture import plain_module
from audit.models.layouts import stretch
from audit.settings import Settings
from audit.vocabulary import Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> LipschitzBound:
    """One row where the chunk holds the first example, none elsewhere."""
    first = chunk.positions[chunk.positions == 0]
    shape = (chunk.images.shape[1], chunk.images.shape[2], chunk.images.shape[3])
    log_lipschitz, unknown = _of(classifier, shape) if len(first) else (0.0, "")
    return LipschitzBound(
        positions=first,
        log_lipschitz=np.full(len(first), log_lipschitz, dtype=np.float64),
        unknown=np.array([unknown] * len(first), dtype=np.str_),
    )


def _of(classifier: Classifier, image_shape: tuple[int, int, int]) -> tuple[float, str]:
    try:
        network, spec = plain_module(classifier)
        found = bounds.architecture_bound(network, spec.shape_seen(image_shape)).log_lipschitz
    except MissingCapability as reason:
        return 0.0, f"no architecture bound: {str(reason).removeprefix('no architecture bound: ')}"
    return found + math.log(stretch(spec, image_shape)), ""
