"""How the loss moves in noise: random copies in the Linf ball of the threat."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.ball import Ball, distance
from audit.attacks.losses import cross_entropy
from audit.attacks.randomness import generators, in_parts
from audit.attacks.run import Batch, Oracle
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import EvidenceStore, NoiseResponse
from audit.models import Classifier
from audit.models.outputs import PROBABILITY_FLOOR
from audit.settings import Settings
from audit.vocabulary import Norm, Threat

# M of the definition.
COPIES = 10
# Keeps 0 / 0 at 0.
_TINY = 1e-30
# What a floored probability becomes as a float32 logarithm.
_FLOOR = float(torch.tensor(PROBABILITY_FLOOR).log())


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> NoiseResponse:
    """Of every example, right or wrong. A copy that lies on the image itself (at epsilon 0) has no ratio and counts as 0."""
    assert threat is not None, "noise belongs to a threat"
    size, logits = len(chunk.labels), clean(needed).logits
    oracle = Oracle(classifier, size)
    ratio = np.zeros(size if threat.norm is Norm.LINF else 0)
    floored, answered = np.zeros(len(ratio), dtype=np.int64), np.zeros(len(ratio), dtype=np.int64)
    if len(ratio):
        batch = Batch.of(chunk, classifier.device)
        before = torch.as_tensor(logits, device=classifier.device)
        loss = cross_entropy(before, batch.labels, batch.labels)
        total, met = torch.zeros_like(loss), (_true(before, batch.labels) == _FLOOR).long()
        told = torch.zeros_like(met)
        ball = Ball.around(batch.images, threat)
        sources = generators(settings.seed, batch.ids, "noise response")
        for part in in_parts(sources, COPIES, batch.images, lambda shape, source: torch.rand(shape, generator=source)):
            for copy in part.unbind(dim=1):
                points = ball.confine(batch.images + threat.epsilon * (2 * copy - 1))
                after = oracle.logits(batch, points)
                there = ~after.isnan().any(dim=1)
                away = distance(points, batch.images, Norm.LINF)
                change = (cross_entropy(after.double(), batch.labels, batch.labels) - loss).abs()
                total += torch.where(there & (away > 0), change / away.clamp(min=_TINY), 0.0)
                met += _true(after, batch.labels) == _FLOOR
                told += there
        ratio, floored, answered = (total / told.clamp(min=1)).cpu().numpy(), met.cpu().numpy(), told.cpu().numpy()
    return NoiseResponse(
        threat=threat,
        copies=COPIES,
        ratio=ratio,
        answered=answered,
        floored=floored,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )


def _true(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The logit of the true class, (n,): where it is the floor exactly, a probability was cut there."""
    return logits.gather(1, labels[:, None])[:, 0].float()
