"""Accuracy against epsilon: which examples survive at each of several budgets around the threat's own.

The curve goes DOWN in epsilon and attacks only what the larger budget broke: about a third of the passes of independent attacks.
It assumes that the larger budget missed no break, so the point at the threat's own epsilon comes from the full cascade.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from audit.attacks.ball import distance
from audit.attacks.cascade import Aims, survivors_in_turn
from audit.attacks.run import Batch, Oracle, misclassified
from audit.attacks.stages import Stage
from audit.data import Chunk
from audit.evidence import AccuracyEpsilon, Floats, WorstCase
from audit.models import Classifier
from audit.vocabulary import Norm

# Gives the closest misclassified image per example, (n, c, h, w), the clean image where it met none.
ClosestBreak = Callable[[Oracle, Batch, Norm], torch.Tensor]


def accuracy_epsilon(
    classifier: Classifier,
    chunk: Chunk,
    evidence: WorstCase,
    clean_logits: Floats,
    budgets: Sequence[float],
    arm: str,
    stages: Sequence[Stage],
) -> AccuracyEpsilon:
    """The curve of a chunk at `budgets` (ascending, from 0), given its worst case at the threat's own epsilon.

    Every other point is attacked by `stages` in turn, on survivors. An example the model fails to answer counts as not robust.
    `robust` is monotone: a break counts at every larger epsilon. Classes are aimed at in the order of the largest epsilon.
    """
    threat, epsilons = evidence.threat, np.array(budgets)
    oracle, batch = Oracle(classifier, len(chunk.labels)), Batch.of(chunk, classifier.device)
    aims = Aims(oracle, torch.as_tensor(clean_logits, dtype=torch.float32, device=classifier.device))
    robust = np.tile(evidence.clean_correct[:, None], (1, len(epsilons)))
    own = threat.epsilon
    # The smallest distance at which a verified break is known; natural errors are already out.
    known = np.where(evidence.clean_correct & (evidence.broken_by >= 0), evidence.distance, np.inf)
    robust[:, epsilons >= own] &= evidence.robust[:, None]
    above, below = np.flatnonzero(epsilons > own), np.flatnonzero((epsilons > 0) & (epsilons < own))
    for columns, open_rows in ((above, evidence.robust), (below, evidence.clean_correct & ~evidence.robust)):
        candidates = open_rows.copy()
        for column in columns[::-1]:
            at = threat.at(float(epsilons[column]))
            oracle.unanswered[:] = False
            # A break known inside the ball is not searched again.
            survived = candidates & (known > at.epsilon)
            for _, left, verified in survivors_in_turn(oracle, batch, np.flatnonzero(survived), at, stages, aims):
                broken = left[verified.broken]
                known[broken] = np.minimum(known[broken], verified.distance[verified.broken])
                survived[broken] = False
            survived &= ~oracle.unanswered
            robust[:, column] &= ~candidates | survived
            candidates &= ~survived
    return AccuracyEpsilon(
        threat=threat,
        epsilons=tuple(float(epsilon) for epsilon in epsilons),
        arm=arm,
        robust=robust,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )


def accuracy_epsilon_by_distance(
    classifier: Classifier, chunk: Chunk, evidence: WorstCase, budgets: Sequence[float], arm: str, closest: ClosestBreak
) -> AccuracyEpsilon:
    """The curve of a chunk from one search per example: it holds below the distance of the closest break that is known.

    What survived the full cascade is robust up to the threat's own epsilon, whatever this search finds inside. An example the model
    fails to answer counts as not robust.
    """
    threat, size = evidence.threat, len(chunk.labels)
    oracle, batch = Oracle(classifier, size), Batch.of(chunk, classifier.device)
    known = np.where(evidence.broken_by >= 0, evidence.distance, np.inf)
    rows = np.flatnonzero(evidence.clean_correct) if max(budgets) > 0 else np.empty(0, dtype=np.int64)
    if len(rows):
        part = batch.take(torch.as_tensor(rows, device=classifier.device))
        images = closest(oracle, part, threat.norm)
        gone = distance(images, part.images, threat.norm)
        # The harness asks again; it needs no ball of its own, for the distance is the result.
        broken = misclassified(oracle.logits(part, images), part.labels)
        known[rows] = np.minimum(known[rows], torch.where(broken, gone, torch.inf).cpu().numpy())
    known[oracle.unanswered] = 0
    known[evidence.robust] = np.maximum(known[evidence.robust], np.nextafter(threat.epsilon, np.inf))
    epsilons = np.array(budgets)
    robust = evidence.clean_correct[:, None] & ((epsilons == 0) | (known[:, None] > epsilons))
    robust[:, epsilons >= threat.epsilon] &= evidence.robust[:, None]
    return AccuracyEpsilon(
        threat=threat,
        epsilons=tuple(float(epsilon) for epsilon in epsilons),
        arm=arm,
        robust=robust,
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )
