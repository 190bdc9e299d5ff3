"""The fast gradient sign method (Goodfellow et al. 2015, arXiv 1412.6572), and its L2 form."""

from __future__ import annotations

import torch

from audit.attacks.ball import Ball
from audit.attacks.losses import cross_entropy
from audit.attacks.run import Batch, Oracle
from audit.vocabulary import Threat


def fgsm(oracle: Oracle, batch: Batch, threat: Threat) -> torch.Tensor:
    """X + epsilon times the steepest unit direction of the cross-entropy at x, clipped; x itself where the gradient is zero."""
    if threat.epsilon == 0 or not len(batch):
        return batch.images.clone()
    ball = Ball.around(batch.images, threat)
    _, gradient = oracle.gradient(batch, batch.images, cross_entropy)
    return ball.project(batch.images + threat.epsilon * ball.steepest(batch.images, gradient))
