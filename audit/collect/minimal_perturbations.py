"""The smallest changes that minimum-norm attacks find: FMN in each norm, DDN in L2."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from audit.attacks.ddn import ddn
from audit.attacks.fmn import fmn
from audit.attacks.minimal import MinimumNorm, minimal
from audit.attacks.run import Batch, Oracle
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import EvidenceStore, MinimalPerturbations
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Norm, Threat

# Gradients of each search, the number of both sources.
STEPS = 100
SEARCHES: Mapping[str, tuple[MinimumNorm, Norm]] = {
    "FMN linf": (fmn, Norm.LINF),
    "FMN l2": (fmn, Norm.L2),
    "DDN l2": (ddn, Norm.L2),
    "FMN l1": (fmn, Norm.L1),
}


def passes() -> tuple[int, int]:
    """Forward and backward passes that one example takes at most; the harness asks once more after each search."""
    return len(SEARCHES) * (STEPS + 1), len(SEARCHES) * STEPS


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> MinimalPerturbations:
    """Of the first examples of the sample; possibly none."""
    logits = clean(needed).logits
    rows = np.flatnonzero(chunk.positions < settings.profile.minimal_samples)
    index = torch.as_tensor(rows, device=classifier.device)
    oracle, batch = Oracle(classifier, len(chunk.labels)), Batch.of(chunk, classifier.device).take(index)
    answers = torch.as_tensor(logits[rows], device=classifier.device)
    found = [minimal(oracle, batch, answers, attack, norm).distance for attack, norm in SEARCHES.values()]
    return MinimalPerturbations(
        searches=tuple(SEARCHES),
        positions=chunk.positions[rows],
        distance=np.stack(found, axis=1),
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )
