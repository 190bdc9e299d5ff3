"""One change for all images: found on images set apart, tried on the sample."""

from __future__ import annotations

import math

import numpy as np
import torch

from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.universal import applied, universal
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, UniversalEffect, UniversalPerturbation
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Norm, Threat

STEPS = 40
# The search sees all its images in every step, so memory bounds how many: this many values, and more images than that never.
_MOST_VALUES, _MOST_IMAGES, _FEWEST_IMAGES = 1 << 22, 256, 32


def images_at_once(shape: tuple[int, int, int]) -> int:
    """On how many images (c, h, w) the perturbation is found at most, whatever the size of a chunk.

    >>> images_at_once((1, 28, 28)), images_at_once((3, 224, 224))
    (256, 32)
    """
    return max(_FEWEST_IMAGES, min(_MOST_IMAGES, _MOST_VALUES // math.prod(shape)))


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> UniversalPerturbation:
    """Away from what the model answers itself, so that no label is needed; zeros at L1, where the search is not defined.

    Images that the model does not answer take no part.
    """
    assert threat is not None, "a perturbation belongs to a threat"
    batch, oracle = Batch.of(chunk, classifier.device), Oracle(classifier, len(chunk.labels))
    logits = oracle.logits(batch, batch.images)
    answers = logits.nan_to_num().argmax(dim=1)
    own = Batch(images=batch.images, labels=answers, targets=answers, ids=batch.ids, rows=batch.rows)
    own = own.take((~logits.isnan().any(dim=1)).nonzero()[:, 0])
    delta, fooled = torch.zeros_like(batch.images[0]), 0
    if threat.norm is not Norm.L1 and len(own):
        delta = universal(oracle, own, threat, steps=STEPS)
        fooled = int(verify(oracle, own, applied(own.images, delta), threat).broken.sum())
    return UniversalPerturbation(
        threat=threat, delta=delta.cpu().numpy(), images=len(own), fooled=fooled, positions=chunk.positions
    )


def collect_effect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> UniversalEffect:
    """On every clean-correct image of the sample that it was not found on."""
    assert threat is not None, "a perturbation belongs to a threat"
    found = needed.get_as(UniversalPerturbation, EvidenceKey(kind=Evidence.UNIVERSAL_PERTURBATION, threat=threat))
    scored = clean(needed).correct & ~np.isin(chunk.positions, found.positions)
    oracle, broken = Oracle(classifier, len(chunk.labels)), np.zeros(len(chunk.labels), dtype=np.bool_)
    index = torch.as_tensor(np.flatnonzero(scored), device=classifier.device)
    batch = Batch.of(chunk, classifier.device).take(index)
    if len(batch):
        delta = torch.as_tensor(found.delta, device=classifier.device)
        broken[scored] = verify(oracle, batch, applied(batch.images, delta), threat).broken
    return UniversalEffect(
        threat=threat, scored=scored, broken=broken, forward_passes=oracle.forward, backward_passes=oracle.backward
    )
