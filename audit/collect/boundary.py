"""Distances to the boundary: along random directions, which labels suffice for, and by sign steps, which need gradients."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.directions import nearest_change, orthogonal
from audit.attacks.randomness import generator
from audit.attacks.run import Batch, Oracle, misclassified
from audit.attacks.sign_steps import MOST_TARGETS, nearest_by_sign_steps
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import BoundaryDistance, BoundarySteps, Evidence, EvidenceKey, EvidenceStore, Ints, ProbeSample
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat

# m of the definition.
DIRECTIONS = 100


def collect_distance(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> BoundaryDistance:
    """Random directions, of the clean-correct among the first examples of the sample; possibly none."""
    correct = clean(needed).correct
    rows = np.flatnonzero(correct & (chunk.positions < settings.profile.boundary_samples))
    images = torch.tensor(chunk.images, dtype=torch.float32, device=classifier.device)
    found = []
    for row in rows:
        image, label = images[row], int(chunk.labels[row])
        half = orthogonal(DIRECTIONS, image.numel(), generator(settings.seed, str(chunk.ids[row]), "boundary directions"))
        rays = torch.cat([half, -half]).to(classifier.device)
        found.append(nearest_change(image, rays, lambda points, label=label: _changed(classifier, points, label)))  # type: ignore[misc]
    return BoundaryDistance(
        positions=chunk.positions[rows],
        directions=DIRECTIONS,
        distance=np.array([each.distance for each in found], dtype=np.float64),
        censored=np.array([each.censored for each in found], dtype=np.bool_),
        queries=np.array([each.queries for each in found], dtype=np.int64),
    )


def collect_steps(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> BoundarySteps:
    """Sign steps towards the nearest classes, of the examples of the probe: the first 100 clean-correct ones."""
    sample = needed.get_as(ProbeSample, EvidenceKey(kind=Evidence.PROBE_SAMPLE))
    rows = np.flatnonzero(np.isin(chunk.positions, sample.positions))
    oracle = Oracle(classifier, len(chunk.labels))
    batch = Batch.of(chunk, classifier.device).take(torch.as_tensor(rows, device=classifier.device))
    found = nearest_by_sign_steps(oracle, batch)
    return BoundarySteps(
        positions=chunk.positions[rows],
        targets=min(MOST_TARGETS, classifier.classes - 1),
        distance=found.distance.cpu().numpy(),
        censored=found.censored.cpu().numpy(),
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )


def _changed(classifier: Classifier, points: torch.Tensor, label: int) -> torch.Tensor:
    """Which of the points (m, c, h, w) get another class than `label`, (m,); none that the model does not answer."""
    rows: Ints = np.arange(len(points), dtype=np.int64)
    labels = torch.full((len(points),), label, dtype=torch.int64, device=points.device)
    batch = Batch(images=points, labels=labels, targets=labels, ids=("",) * len(points), rows=rows)
    return misclassified(Oracle(classifier, len(points)).logits(batch, points), labels)
