"""How often the answer changes along perturbation sequences, of the first examples of the sample."""

from __future__ import annotations

import numpy as np
import torch

from audit.collect.corruptions import answers_to
from audit.corruptions.families import FAMILIES, FRAMES, NOISE_FAMILIES
from audit.corruptions.kinds import levels_of
from audit.corruptions.sequences import frames
from audit.data import Chunk
from audit.evidence import EvidenceStore, Sequences
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Sequences:
    """Classify every frame of every family for the rows whose position is below the profile's number; possibly none."""
    rows = np.flatnonzero(chunk.positions < settings.profile.sequence_samples)
    images = torch.tensor(chunk.images[rows], dtype=torch.float32, device=classifier.device)
    levels, ids = levels_of(images), [str(chunk.ids[row]) for row in rows]
    flips = np.zeros((len(rows), len(FAMILIES)), dtype=np.int64)
    for place, family in enumerate(FAMILIES if len(rows) else ()):
        compared = None
        for frame in frames(levels, family, ids, settings.seed):
            answers, _ = answers_to(classifier, frame)
            if compared is not None:
                flips[:, place] += (answers != compared).numpy()
            if compared is None or family not in NOISE_FAMILIES:
                compared = answers
    return Sequences(positions=chunk.positions[rows], families=FAMILIES, frames=FRAMES, flips=flips)
