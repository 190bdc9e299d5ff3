"""How the loss moves in noise: random copies in the Linf ball of the threat."""

from __future__ import annotations

import math

import numpy as np
import torch

from audit.attacks.ball import Ball, distance
from audit.attacks.losses import cross_entropy
from audit.attacks.randomness import generators, in_parts
from audit.attacks.run import Batch, Oracle
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.errors import ModelError
from audit.evidence import EvidenceStore, NoiseResponse
from audit.models import Classifier
from audit.models.outputs import PROBABILITY_FLOOR
from audit.settings import Settings
from audit.vocabulary import Norm, Threat

# M of the definition.
COPIES = 10
# What a floored probability becomes as a float32 logarithm.
_FLOOR = float(torch.tensor(PROBABILITY_FLOOR).log())


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> NoiseResponse:
    """Of every example, right or wrong. A copy that lies on the image itself (at epsilon 0) has no ratio and counts as 0.

    Raises:
        ModelError: the model does not answer a noisy copy.
    """
    assert threat is not None, "noise belongs to a threat"
    size, logits = len(chunk.labels), clean(needed).logits
    oracle = Oracle(classifier, size)
    ratio, floored = np.zeros(size if threat.norm is Norm.LINF else 0), np.zeros(size, dtype=np.int64)
    if len(ratio):
        batch = Batch.of(chunk, classifier.device)
        before = torch.as_tensor(logits, device=classifier.device)
        loss, nowhere = cross_entropy(before, batch.labels, batch.labels), torch.zeros(size, dtype=torch.int64)
        total, met = torch.zeros_like(loss), (_true(before, batch.labels) == _FLOOR).long()
        ball = Ball.around(batch.images, threat)
        sources = generators(settings.seed, batch.ids, "noise response")
        for part in in_parts(sources, COPIES, batch.images, lambda shape, source: torch.rand(shape, generator=source)):
            for copy in part.unbind(dim=1):
                points = ball.confine(batch.images + threat.epsilon * (2 * copy - 1))
                after = oracle.logits(batch, points)
                if after.isnan().any():
                    bad = int(after.isnan().any(dim=1).nonzero()[0])
                    raise ModelError(f"the model does not answer a noisy copy of example {chunk.ids[bad]}")
                away = distance(points, batch.images, Norm.LINF)
                change = (cross_entropy(after.double(), batch.labels, batch.labels) - loss).abs()
                total += torch.where(away > 0, change / away.clamp(min=math.ulp(0.0)), nowhere.to(change))
                met += _true(after, batch.labels) == _FLOOR
        ratio, floored = (total / COPIES).cpu().numpy(), met.cpu().numpy()
    return NoiseResponse(
        threat=threat,
        copies=COPIES,
        ratio=ratio,
        floored=floored[: len(ratio)],
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )


def _true(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The logit of the true class, (n,): where it is the floor exactly, a probability was cut there."""
    return logits.gather(1, labels[:, None])[:, 0].float()
