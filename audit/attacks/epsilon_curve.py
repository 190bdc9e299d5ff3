"""Accuracy against epsilon: which examples survive at each of several budgets around the threat's own.

The curve goes DOWN in epsilon and attacks only what the larger budget broke: about a third of the passes of independent attacks.
It assumes that the larger budget missed no break, so the point at the threat's own epsilon comes from the full cascade.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from audit.attacks.cascade import Aims, survivors_in_turn
from audit.attacks.run import Batch, Oracle
from audit.attacks.stages import Stage
from audit.data import Chunk
from audit.evidence import UNKNOWN, AccuracyEpsilon, Floats, WorstCase
from audit.models import Classifier


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


def accuracy_epsilon_by_distance(evidence: WorstCase, budgets: Sequence[float], arm: str) -> AccuracyEpsilon:
    """The curve of a chunk from the distances of the nearest errors that its worst case met: it asks nothing.

    What survived the cascade has no known error inside the ball, so the curve agrees with it at the threat's own epsilon. An
    example the model failed to answer counts as not robust.
    """
    threat, epsilons = evidence.threat, np.array(budgets)
    known = np.where(evidence.state == UNKNOWN, 0.0, evidence.nearest)
    # An error that rounding alone left out of the ball lies at its edge.
    known[evidence.robust] = np.maximum(known[evidence.robust], np.nextafter(threat.epsilon, np.inf))
    nothing = np.zeros(len(evidence.labels), dtype=np.int64)
    return AccuracyEpsilon(
        threat=threat,
        epsilons=tuple(float(epsilon) for epsilon in epsilons),
        arm=arm,
        robust=evidence.clean_correct[:, None] & ((epsilons == 0) | (known[:, None] > epsilons)),
        forward_passes=nothing,
        backward_passes=nothing,
    )
