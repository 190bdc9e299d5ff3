"""The fast gradient sign method (Goodfellow et al. 2015, arXiv 1412.6572), and its L2 and L1 forms."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.losses import cross_entropy
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Threat


def fgsm(oracle: Oracle, batch: Batch, threat: Threat) -> torch.Tensor:
    """The allowed image where the linearised cross-entropy is largest: x + epsilon sign(g), clipped, for Linf; x where g = 0."""
    if threat.epsilon == 0 or not len(batch):
        return batch.images.clone()
    ball = Ball.around(batch.images, threat)
    _, gradient = oracle.gradient(batch, batch.images, cross_entropy)
    return ball.farthest(gradient)
