"""The reference attack: one named attack at full budget on every clean-correct example, measured from every side."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square
from audit.collect.distances import distortion
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import EvidenceStore, Images, ReferenceAttack
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> ReferenceAttack:
    """PGD on the margin with gradients, else Square on the margin; the strongest iterate counts, not the first that succeeds."""
    return attacked(classifier, chunk, settings, needed, threat)[0]


def attacked(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> tuple[ReferenceAttack, Images]:
    """The attack, and its images (n, c, h, w), which no evidence keeps; clean ones where nothing was attacked.

    Where the model gives no answer on the strongest iterate, the clean logits and the clean image stand: no success is claimed.
    """
    assert threat is not None, "a reference attack belongs to a threat"
    profile, seed, predictions = settings.profile, settings.seed, clean(needed)
    size, correct = len(chunk.labels), predictions.correct
    rows = np.flatnonzero(correct)
    oracle, whole = Oracle(classifier, size), Batch.of(chunk, classifier.device)
    batch = whole.take(torch.as_tensor(rows, device=classifier.device))
    if Capability.GRADIENTS in classifier.lacks:
        name = f"Square-{profile.reference_queries}"
        proposals = square(
            oracle, batch, threat, queries=profile.reference_queries, seed=seed, purpose="reference", stop_early=False
        )
    else:
        name = f"PGD-{profile.reference_steps} margin"
        proposals = pgd(
            oracle, batch, threat, loss="margin", steps=profile.reference_steps, seed=seed, purpose="reference", stop_early=False
        )
    adversarial, logits, outside = chunk.images.copy(), predictions.logits.copy(), np.zeros(size, dtype=np.bool_)
    success_in_8_bits = np.zeros(size, dtype=np.bool_)
    if len(rows):
        verified = verify(oracle, batch, proposals, threat)
        answered = rows[verified.answered]
        adversarial[answered] = verified.images.cpu().numpy()[verified.answered]
        logits[answered] = verified.logits[verified.answered]
        outside[rows] = verified.outside
        rounded = verify(oracle, batch, in_8_bits(verified.images, batch.images), threat)
        success_in_8_bits[rows] = verified.broken & rounded.broken & ~rounded.outside
    measured = distortion(chunk.images, adversarial)
    found = ReferenceAttack(
        threat=threat,
        attack=name,
        labels=chunk.labels,
        clean_correct=correct,
        adversarial_logits=logits,
        l0=measured.l0,
        l2=measured.l2,
        linf=measured.linf,
        norm_l2=measured.norm_l2,
        norm_linf=measured.norm_linf,
        ssim=measured.ssim,
        psd=measured.psd,
        psd_per_pixel=measured.psd_per_pixel,
        outside=outside,
        success_in_8_bits=success_in_8_bits,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )
    return found, adversarial


def in_8_bits(images: torch.Tensor, clean_images: torch.Tensor) -> torch.Tensor:
    """`images` (n, c, h, w) with every pixel at a multiple of 1/255: the next one towards the clean pixel, so that none moves away.

    >>> in_8_bits(torch.tensor([0.99, 0.99, 3.0]) / 255, torch.tensor([0.0, 3.0, 3.0]) / 255).mul(255).round(decimals=3).tolist()
    [0.0, 1.0, 3.0]
    """
    # What float32 makes of a multiple of 1/255 lies within this of one.
    rounding = 1e-4
    steps = images.double() * 255
    towards = torch.where(images > clean_images, (steps + rounding).floor(), (steps - rounding).ceil())
    return (towards / 255).to(images.dtype).clamp(0, 1)
