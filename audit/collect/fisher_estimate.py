"""Query-only Fisher evidence on the first examples of the sample."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.randomness import generator
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, FisherEstimate, Floats, Temperature
from audit.fisher.directions import best_kind
from audit.fisher.queries import QueryEstimate, estimate
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> FisherEstimate:
    """Estimates for the rows whose position is below the profile's number; possibly none."""
    temperature = needed.get_as(Temperature, EvidenceKey(kind=Evidence.TEMPERATURE)).value
    rows = np.flatnonzero(chunk.positions < settings.profile.fisher_samples)
    dimension = int(np.prod(chunk.images.shape[1:]))
    directions = min(settings.profile.fisher_directions, dimension)
    kind = best_kind(dimension, directions)
    found: list[QueryEstimate] = []
    for row in rows:
        image = torch.tensor(chunk.images[row], dtype=torch.float32, device=classifier.device)
        source = generator(settings.seed, str(chunk.ids[row]), "fisher estimate")
        found.append(estimate(classifier, image, temperature, directions, source, kind))

    def column(name: str) -> Floats:
        return np.array([getattr(row, name) for row in found], dtype=np.float64)

    return FisherEstimate(
        positions=chunk.positions[rows],
        dimension=dimension,
        directions=directions,
        kind=kind.value,
        lambda_max=column("lambda_max"),
        trace=column("trace"),
        lambda_max_raw=column("lambda_max_raw"),
        trace_raw=column("trace_raw"),
        standard_error=column("standard_error"),
        lower_bound=column("lower_bound"),
        step=column("step"),
        step_error=column("step_error"),
        queries=np.array([row.queries for row in found], dtype=np.int64),
        status=np.array([row.status for row in found], dtype="<U10"),
    )
