"""Certification by randomised smoothing (Cohen, Rosenfeld & Kolter 2019, arXiv 1902.02918): counts of answers in Gaussian noise."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.randomness import generators, in_parts, normal
from audit.attacks.run import Batch, Oracle
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import Certification, EvidenceStore
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat

# Fixed in advance, so that nobody can choose the certificate that looks best: the source's sigma and its alpha, and its first look.
# It draws 100,000 copies for a certificate; 1,000 end the largest provable radius at 2.46 instead of 3.8 sigma.
SIGMA, ALPHA = 0.25, 0.001
LOOKED, DRAWN = 100, 1000


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> Certification:
    """Of the first examples of the sample, right or wrong; possibly none. Noisy images are clipped to [0, 1], as all are here."""
    predictions = clean(needed)
    rows = np.flatnonzero(chunk.positions < settings.profile.certified_samples)
    batch = Batch.of(chunk, classifier.device).take(torch.as_tensor(rows, device=classifier.device))
    first = _counts(classifier, batch, settings.seed, "certification, first look", LOOKED)
    then = _counts(classifier, batch, settings.seed, "certification", DRAWN)
    top, labels = first.argmax(axis=1), chunk.labels[rows]
    return Certification(
        sigma=SIGMA,
        alpha=ALPHA,
        looked=LOOKED,
        drawn=DRAWN,
        positions=chunk.positions[rows],
        labels=labels,
        top=np.asarray(top, dtype=np.int64),
        agreed=np.take_along_axis(then, top[:, None], axis=1)[:, 0],
        right=np.take_along_axis(then, labels[:, None], axis=1)[:, 0],
        clean=predictions.correct[rows],
        queries=np.full(len(rows), LOOKED + DRAWN, dtype=np.int64),
    )


def _counts(classifier: Classifier, batch: Batch, seed: int, purpose: str, draws: int) -> np.ndarray:
    """How many of `draws` noisy copies of each example get each class, (m, K); one that the model does not answer gets none."""
    counts = np.zeros((len(batch), classifier.classes), dtype=np.int64)
    if not len(batch):
        return counts
    oracle = Oracle(classifier, int(batch.rows.max()) + 1)
    for noise in in_parts(generators(seed, batch.ids, purpose), draws, batch.images, normal):
        points = (batch.images[:, None] + SIGMA * noise).clamp(0, 1)
        logits = oracle.several(batch, points)
        answered = ~logits.isnan().any(dim=2)
        votes = torch.nn.functional.one_hot(logits.nan_to_num().argmax(dim=2), classifier.classes) * answered[:, :, None]
        counts += votes.sum(dim=1).cpu().numpy()
    return counts
