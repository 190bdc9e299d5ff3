"""The per-example worst case over the attacks of one arm: each stage sees only what is still unbroken."""

from __future__ import annotations

import numpy as np
import torch

from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.stages import Stage
from audit.attacks.targets import ORDERS
from audit.data import Chunk
from audit.evidence import BROKEN, NATURAL_ERROR, NOT_BROKEN, SURVIVED, UNKNOWN, Floats, ShownFailure, WorstCase
from audit.models import Classifier
from audit.vocabulary import Threat


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
    aims = _Aims(oracle, torch.as_tensor(clean_logits, dtype=torch.float32, device=classifier.device), threat)
    left = np.flatnonzero(clean_correct) if threat.epsilon > 0 else np.empty(0, dtype=np.int64)
    for index, stage in enumerate(stages):
        if not len(left):
            break
        part = batch.take(torch.as_tensor(left, device=classifier.device))
        if stage.target:
            part = part.aimed(aims.of(part, stage))
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


class _Aims:
    """The order in which the classes of each example are aimed at, found when a stage first asks: most never need it."""

    def __init__(self, oracle: Oracle, logits: torch.Tensor, threat: Threat) -> None:
        self._oracle, self._logits, self._threat = oracle, logits, threat
        self._orders: dict[str, torch.Tensor] = {}

    def of(self, part: Batch, stage: Stage) -> torch.Tensor:
        """The classes (n,) that `stage` aims at; later stages ask for fewer and fewer of the same examples."""
        rows = torch.as_tensor(part.rows, device=self._logits.device)
        if stage.order not in self._orders:
            found = ORDERS[stage.order](self._oracle, part, self._logits[rows], self._threat)
            whole = found.new_zeros(len(self._logits), found.shape[1])
            whole[rows] = found
            self._orders[stage.order] = whole
        return self._orders[stage.order][rows, stage.target - 1]


def _top_probability(logits: Floats) -> Floats:
    """Softmax probability of the largest logit, (n,)."""
    if not len(logits):
        return np.zeros(0)
    probability: Floats = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return probability
