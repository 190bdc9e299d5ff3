"""Answers to every kind of corruption at every severity, of the first examples of the sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from audit.corruptions import sizes
from audit.corruptions.kinds import KINDS, corrupted, levels_of
from audit.corruptions.parameters import BENCHMARK_KINDS, SEVERITIES, absent_from
from audit.data import Chunk, CorruptedImages
from audit.evidence import MADE_HERE, Corruptions, EvidenceStore
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

# Probabilities kept of one model: 64 MB.
MOST_PROBABILITIES = 1 << 24
NOT_THERE = "the folder of corrupted images holds none"


def kinds_for(channels: int) -> tuple[str, ...]:
    """The kinds that mean something on images with so many channels."""
    return tuple(kind for kind in KINDS if sizes.not_applicable(kind, channels) is None)


def kinds_in(found: CorruptedImages) -> tuple[str, ...]:
    """The kinds of a folder: the published ones in their order, then any others."""
    return (*(kind for kind in KINDS if kind in found.kinds), *(kind for kind in found.kinds if kind not in KINDS))


def not_there(settings: Settings) -> dict[str, str]:
    """The kinds that a folder of corrupted images lacks, and what that costs; nothing where the images are made here."""
    absent = absent_from(settings.corrupted_kinds) if settings.corrupted_kinds else ()
    if not absent:
        return {}
    because = (
        f"the folder of corrupted images has no {', '.join(absent)}; means over the {len(BENCHMARK_KINDS)} kinds are undefined"
    )
    return {"kinds of corruption": because}


def rows_kept(kinds: int, classes: int) -> int:
    """Of how many examples whole answers are kept.

    >>> rows_kept(19, 10), rows_kept(19, 1000)
    (17660, 176)
    """
    return MOST_PROBABILITIES // (kinds * len(SEVERITIES) * classes)


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Corruptions:
    """Corrupt (or take from a folder) and classify the rows whose position is below the profile's number; possibly none."""
    rows = np.flatnonzero(chunk.positions < settings.profile.corruption_samples)
    images = torch.tensor(chunk.images[rows], dtype=torch.float32, device=classifier.device)
    levels, ids = levels_of(images), [str(chunk.ids[row]) for row in rows]
    channels, labels = images.shape[1], torch.as_tensor(chunk.labels[rows])
    kinds = kinds_for(channels) if chunk.corrupted is None else kinds_in(chunk.corrupted)
    classes = classifier.classes
    shape = (len(rows), len(kinds), len(SEVERITIES))
    predicted = np.zeros(shape, dtype=np.int64)
    confidence, true_confidence, distance = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    kept = np.flatnonzero(chunk.positions[rows] < rows_kept(len(kinds), classes))
    probabilities = np.zeros((len(kept), *shape[1:], classes), dtype=np.float32)
    for place, kind in enumerate(kinds):
        if len(rows) == 0:
            break
        made = corrupted(levels, kind, ids, settings.seed) if chunk.corrupted is None else read(chunk.corrupted, kind, ids)
        for index, changed in enumerate(made):
            changed = changed.to(classifier.device)
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
        left_out_because=tuple(
            NOT_THERE if chunk.corrupted is not None else sizes.not_applicable(kind, channels) or "" for kind in left_out
        ),
        source=MADE_HERE if chunk.corrupted is None else source_of(chunk.corrupted),
        no_scores=classifier.lacks.get(Capability.SCORES),
    )


def read(found: CorruptedImages, kind: str, ids: Sequence[str], severities: Sequence[int] = SEVERITIES) -> Iterator[torch.Tensor]:
    """The images of a folder under one kind of corruption, for one severity after the other, (n, c, h, w) uint8.

    Raises:
        DataError: an image cannot be read, or is not of the clean images' shape.
    """
    for severity in severities:
        yield levels_of(torch.from_numpy(found.images(ids, kind, severity)))


def source_of(found: CorruptedImages) -> str:
    """Where the images of a folder come from, in words that no other images have."""
    return f"a folder in the form of {found.form}, sha256 {found.digest[:16]}"


def answers_to(classifier: Classifier, levels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes (n,) and probabilities (n, K) float64 on the CPU for 8-bit images; one-hot rows of a model that gives labels only.

    Raises:
        ModelError: the model's outputs are not finite, or not (n, K).
    """
    logits = classifier.logits(levels.float() / 255).double().cpu()
    return logits.argmax(dim=1), logits if Capability.SCORES in classifier.lacks else logits.softmax(dim=1)
