"""Inner layers on the images of the reference attack, beside the clean images they were made of."""

from __future__ import annotations

import numpy as np
import torch

from audit.collect import reference_attack
from audit.collect.neurons import activity, met, profile_of, scored_rows, topped
from audit.data import Chunk
from audit.evidence import AdversarialNeurons, EvidenceStore, Images, ReferenceAttack
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> AdversarialNeurons:
    """Makes the attacked images again, which no evidence keeps: every draw and every block being fixed, they are the same."""
    return beside_attack(classifier, chunk, settings, needed, threat)[1]


def beside_attack(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> tuple[ReferenceAttack, AdversarialNeurons]:
    """The reference attack, and what its images do inside the network, from one attack."""
    attack, images = reference_attack.attacked(classifier, chunk, settings, needed, threat)
    return attack, _inside(classifier, chunk, settings, needed, attack, images)


def _inside(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, attack: ReferenceAttack, images: Images
) -> AdversarialNeurons:
    rows = np.flatnonzero(attack.clean_correct)
    profile, size = profile_of(needed), len(chunk.labels)

    def at(pixels: Images) -> torch.Tensor:
        return torch.tensor(pixels[rows], dtype=torch.float32, device=classifier.device)

    clean, moved = (activity(classifier, at(pixels), settings.layers) for pixels in (chunk.images, images))
    scored = scored_rows(chunk, profile)[rows]
    sections, below, above = met(moved.values[scored], profile)
    difference, magnitude = np.zeros((size, len(clean.layers))), np.zeros((size, len(clean.layers)))
    difference[rows] = clean.layer_means(np.abs(moved.values - clean.values))
    magnitude[rows] = clean.layer_means(np.abs(clean.values))
    return AdversarialNeurons(
        threat=attack.threat,
        layers=clean.layers,
        units=clean.units,
        scored=int(scored.sum()),
        sections=sections,
        below=below,
        above=above,
        top=topped(moved),
        attacked=attack.clean_correct,
        difference=difference,
        magnitude=magnitude,
        forward_passes=np.where(attack.clean_correct, 2, 0),
        backward_passes=np.zeros(size, dtype=np.int64),
    )
