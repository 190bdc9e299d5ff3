"""Answers to every kind of corruption at every severity, of the first examples of the sample."""

from __future__ import annotations

import numpy as np
import torch

from audit.corruptions import sizes
from audit.corruptions.kinds import KINDS, corrupted, levels_of
from audit.corruptions.parameters import SEVERITIES
from audit.data import Chunk
from audit.evidence import Corruptions, EvidenceStore
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

# Probabilities kept of one model: 64 MB.
MOST_PROBABILITIES = 1 << 24


def kinds_for(channels: int) -> tuple[str, ...]:
    """The kinds that mean something on images with so many channels."""
    return tuple(kind for kind in KINDS if sizes.not_applicable(kind, channels) is None)


def rows_kept(channels: int, classes: int) -> int:
    """Of how many examples whole answers are kept.

    >>> rows_kept(3, 10), rows_kept(3, 1000)
    (17660, 176)
    """
    return MOST_PROBABILITIES // (len(kinds_for(channels)) * len(SEVERITIES) * classes)


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Corruptions:
    """Corrupt and classify the rows whose position is below the profile's number; possibly none."""
    rows = np.flatnonzero(chunk.positions < settings.profile.corruption_samples)
    images = torch.tensor(chunk.images[rows], dtype=torch.float32, device=classifier.device)
    levels, ids = levels_of(images), [str(chunk.ids[row]) for row in rows]
    channels, labels = images.shape[1], torch.as_tensor(chunk.labels[rows])
    kinds, classes = kinds_for(channels), classifier.classes
    shape = (len(rows), len(kinds), len(SEVERITIES))
    predicted = np.zeros(shape, dtype=np.int64)
    confidence, true_confidence, distance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    kept = np.flatnonzero(chunk.positions[rows] < rows_kept(channels, classes))
    probabilities = np.zeros((len(kept), *shape[1:], classes), dtype=np.float32)
    for place, kind in enumerate(kinds):
        if len(rows) == 0:
            break
        for index, changed in enumerate(corrupted(levels, kind, ids, settings.seed)):
            answers, answered = answers_to(classifier, changed)
            predicted[:, place, index] = answers
            confidence[:, place, index] = answered.amax(dim=1)
            true_confidence[:, place, index] = answered.gather(1, labels[:, None])[:, 0]
            probabilities[:, place, index] = answered[torch.as_tensor(kept)]
            distance[:, place, index] = (changed.double() / 255 - images.double()).abs().flatten(1).mean(dim=1).cpu()
    left_out = tuple(kind for kind in KINDS if kind not in kinds)
    return Corruptions(
        positions=chunk.positions[rows],
        kinds=kinds,
        correct=predicted == chunk.labels[rows][:, None, None],
        predicted=predicted,
        confidence=confidence,
        true_confidence=true_confidence,
        probabilities=probabilities,
        distance=distance,
        left_out=left_out,
        left_out_because=tuple(sizes.not_applicable(kind, channels) or "" for kind in left_out),
        source="made here",
        no_scores=classifier.lacks.get(Capability.SCORES),
    )


def answers_to(classifier: Classifier, levels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes (n,) and probabilities (n, K) float64 on the CPU for 8-bit images; one-hot rows of a model that gives labels only.

    Raises:
        ModelError: the model's outputs are not finite, or not (n, K).
    """
    logits = classifier.logits(levels.float() / 255).double().cpu()
    return logits.argmax(dim=1), logits if Capability.SCORES in classifier.lacks else logits.softmax(dim=1)
