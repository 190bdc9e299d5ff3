"""The per-example worst case over the attacks of one arm: each stage sees only what is still unbroken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from audit.attacks.run import Batch, Oracle, Verified, verify
from audit.attacks.stages import Stage
from audit.attacks.targets import ORDERS
from audit.data import Chunk
from audit.evidence import BROKEN, NATURAL_ERROR, NOT_BROKEN, SURVIVED, UNKNOWN, Bools, Floats, Ints, ShownFailure, WorstCase
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
    aims = Aims(oracle, torch.as_tensor(clean_logits, dtype=torch.float32, device=classifier.device))
    attacked = np.flatnonzero(clean_correct) if threat.epsilon > 0 else np.empty(0, dtype=np.int64)
    for index, left, verified in survivors_in_turn(oracle, batch, attacked, threat, stages, aims):
        broken = verified.broken
        rows = left[broken]
        outside[left] |= verified.outside
        state[rows], broken_by[rows] = BROKEN, index
        adversarial_class[rows] = verified.logits[broken].argmax(axis=1)
        confidence[rows] = _top_probability(verified.logits[broken])
        distance[rows] = verified.distance[broken]
        found.update(zip(rows.tolist(), verified.images[torch.as_tensor(broken, device=classifier.device)].cpu(), strict=True))
    state[(state == SURVIVED) & oracle.unanswered] = UNKNOWN
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
        nearest=np.where(state == BROKEN, distance, np.inf),
        outside=outside,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
        shown=tuple(
            ShownFailure(position=int(chunk.positions[row]), clean=chunk.images[row], adversarial=found[row].numpy())
            for row in sorted(found)[:shown]
        ),
    )


class Aims:
    """The order in which the classes of each example are aimed at, found when a stage first asks: most never need it."""

    def __init__(self, oracle: Oracle, logits: torch.Tensor) -> None:
        """`logits` (n, K) are the clean ones of the whole chunk."""
        self._oracle, self._logits = oracle, logits
        self._orders: dict[str, torch.Tensor] = {}
        self._ordered: dict[str, Bools] = {}

    def of(self, part: Batch, stage: Stage, threat: Threat) -> torch.Tensor:
        """The classes (n,) that `stage` aims at; an example keeps the order of the threat it was first asked for."""
        known = self._ordered.setdefault(stage.order, np.zeros(len(self._logits), dtype=np.bool_))
        new = np.flatnonzero(~known[part.rows])
        if len(new):
            fresh = part.take(torch.as_tensor(new, device=self._logits.device))
            rows = torch.as_tensor(fresh.rows, device=self._logits.device)
            found = ORDERS[stage.order](self._oracle, fresh, self._logits[rows], threat)
            whole = self._orders.setdefault(stage.order, found.new_zeros(len(self._logits), found.shape[1]))
            whole[rows] = found
            known[fresh.rows] = True
        return self._orders[stage.order][torch.as_tensor(part.rows, device=self._logits.device), stage.target - 1]


def survivors_in_turn(
    oracle: Oracle, batch: Batch, rows: Ints, threat: Threat, stages: Sequence[Stage], aims: Aims
) -> Iterator[tuple[int, Ints, Verified]]:
    """Run `stages` in turn on the examples `rows` of a batch, each on what the one before left unbroken.

    Yields the stage's place, the rows it saw, and what the harness made of its proposals.
    """
    left = rows
    for index, stage in enumerate(stages):
        if not len(left):
            return
        part = batch.take(torch.as_tensor(left, device=batch.images.device))
        if stage.target:
            part = part.aimed(aims.of(part, stage, threat))
        verified = verify(oracle, part, stage.propose(oracle, part, threat), threat)
        yield index, left, verified
        left = left[~verified.broken]


def _top_probability(logits: Floats) -> Floats:
    """Softmax probability of the largest logit, (n,)."""
    if not len(logits):
        return np.zeros(0)
    probability: Floats = 1 / np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1)
    return probability
