"""The per-example worst case over the attacks of one arm: each stage sees only what is still unbroken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import torch

from audit.attacks.fgsm import fgsm
from audit.attacks.pgd import pgd
from audit.attacks.random_noise import random_noise
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square
from audit.data import Chunk
from audit.evidence import BROKEN, NATURAL_ERROR, NOT_BROKEN, SURVIVED, UNKNOWN, Floats, ShownFailure, WorstCase
from audit.models import Classifier
from audit.profiles import Profile
from audit.vocabulary import Threat


class Attack(Protocol):
    """Proposes one image per example, (n, c, h, w)."""

    def __call__(self, oracle: Oracle, batch: Batch, threat: Threat) -> torch.Tensor:
        """Propose."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One attack of an arm, under the name a reader sees."""

    name: str
    propose: Attack


def white_box_stages(profile: Profile, seed: int) -> tuple[Stage, ...]:
    """FGSM, then the profile's PGD stages, each from a random start of its own."""
    stages = [Stage(name="FGSM", propose=fgsm)]
    seen: Counter[str] = Counter()
    for loss, steps in profile.pgd_stages:
        name = f"PGD-{steps} {loss.replace('_', '-')}"
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name}, start {seen[name]}"
        stages.append(
            Stage(name=name, propose=partial(pgd, loss=loss, steps=steps, seed=seed, purpose=f"cascade {name}", stop_early=True))
        )
    return tuple(stages)


def black_box_stages(profile: Profile, seed: int) -> tuple[Stage, ...]:
    """Random noise, then the Square attack: forward passes only."""
    noise, searched = f"random noise, {profile.noise_draws} draws", f"Square-{profile.square_queries}"
    return (
        Stage(name=noise, propose=partial(random_noise, draws=profile.noise_draws, seed=seed, purpose="cascade noise")),
        Stage(
            name=searched,
            propose=partial(square, queries=profile.square_queries, seed=seed, purpose="cascade Square", stop_early=True),
        ),
    )


def worst_case(
    classifier: Classifier, chunk: Chunk, clean_logits: Floats, threat: Threat, stages: tuple[Stage, ...], shown: int
) -> WorstCase:
    """Run `stages` on the clean-correct examples of a chunk.

    A clean-wrong example keeps its clean class and confidence, at distance 0. An example the model failed to answer inside the
    ball is UNKNOWN unless an attack broke it. At most `shown` broken examples keep their images.
    """
    labels, size = chunk.labels, len(chunk.labels)
    clean_correct = clean_logits.argmax(axis=1) == labels
    state = np.where(clean_correct, SURVIVED, BROKEN).astype(np.int64)
    broken_by = np.where(clean_correct, NOT_BROKEN, NATURAL_ERROR).astype(np.int64)
    adversarial_class = np.where(clean_correct, -1, clean_logits.argmax(axis=1)).astype(np.int64)
    confidence = np.where(clean_correct, 0.0, _top_probability(clean_logits))
    distance, outside = np.zeros(size), np.zeros(size, dtype=np.bool_)
    found: dict[int, torch.Tensor] = {}
    oracle, batch = Oracle(classifier, size), Batch.of(chunk, classifier.device)
    left = np.flatnonzero(clean_correct) if threat.epsilon > 0 else np.empty(0, dtype=np.int64)
    for index, stage in enumerate(stages):
        if not len(left):
            break
        part = batch.take(torch.as_tensor(left, device=classifier.device))
        verified = verify(oracle, part, stage.propose(oracle, part, threat), threat)
        broken = verified.broken
        rows = left[broken]
        outside[left] |= verified.outside
        state[rows], broken_by[rows] = BROKEN, index
        adversarial_class[rows] = verified.logits[broken].argmax(axis=1)
        confidence[rows] = _top_probability(verified.logits[broken])
        distance[rows] = verified.distance[broken]
        found.update(zip(rows.tolist(), verified.images[torch.as_tensor(broken, device=classifier.device)].cpu(), strict=True))
        left = left[~broken]
    state[left[oracle.unanswered[left]]] = UNKNOWN
    return WorstCase(
        threat=threat,
        attacks=tuple(stage.name for stage in stages),
        labels=labels,
        clean_correct=clean_correct,
        state=state,
        broken_by=broken_by,
        adversarial_class=adversarial_class,
        adversarial_confidence=confidence,
        distance=distance,
        outside=outside,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
        shown=tuple(
            ShownFailure(position=int(chunk.positions[row]), clean=chunk.images[row], adversarial=found[row].numpy())
            for row in sorted(found)[:shown]
        ),
    )


def _top_probability(logits: Floats) -> Floats:
    """Softmax probability of the largest logit, (n,)."""
    if not len(logits):
        return np.zeros(0)
    probability: Floats = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return probability
