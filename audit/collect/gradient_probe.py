"""Gradient attacks on the probe's examples, and the health of the gradients that they follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from audit.attacks.fgsm import fgsm
from audit.attacks.health import NOTHING, STEP_SIZES, health
from audit.attacks.run import Batch, Oracle, misclassified, verify
from audit.attacks.stages import Attack
from audit.collect.probe import PROBE_QUERIES, PROBE_STEPS, attack_of, probed_rows, square_of
from audit.data import Chunk
from audit.evidence import Bools, Evidence, EvidenceKey, EvidenceStore, GradientProbe, Ints, Probe
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Norm, Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> GradientProbe:
    """Each attack finds all of the probe's examples unbroken, but for Square: it shows what the others missed."""
    assert threat is not None, "a probe belongs to a threat"
    seed, size = settings.seed, len(chunk.labels)
    probed = probed_rows(chunk, needed, threat)
    iterative = needed.get_as(Probe, EvidenceKey(kind=Evidence.PROBE, threat=threat)).broken
    oracle, whole = Oracle(classifier, size), Batch.of(chunk, classifier.device)

    def of(rows: Bools) -> Batch:
        return whole.take(torch.as_tensor(np.flatnonzero(rows), device=classifier.device))

    unconfirmed = np.zeros(size, dtype=np.bool_)

    def broken(rows: Bools, attack: Attack) -> Bools:
        """Which of `rows` (n,) the attack breaks, (n,)."""
        found = np.zeros(size, dtype=np.bool_)
        if rows.any():
            batch = of(rows)
            verified = verify(oracle, batch, attack(oracle, batch, threat), threat)
            again = misclassified(oracle.logits(batch, verified.images), batch.labels).cpu().numpy()
            found[rows] = verified.broken
            unconfirmed[rows] |= verified.broken & ~again
        return found

    single_step = broken(probed, fgsm)
    doubled = broken(probed, attack_of(seed, steps=2 * PROBE_STEPS))
    restarted = broken(probed, attack_of(seed, purpose="probe restart"))
    standing = probed & ~(iterative | single_step | doubled | restarted)
    queries = PROBE_QUERIES if threat.norm is Norm.LINF else 0
    queried = broken(standing, square_of(seed)) if queries else np.zeros(size, dtype=np.bool_)
    rows = np.flatnonzero(probed)
    found = health(oracle, of(probed), threat, seed=seed, purpose="probe directions") if len(rows) else NOTHING
    return GradientProbe(
        threat=threat,
        step_sizes=STEP_SIZES,
        queries=queries,
        probed=probed,
        single_step=single_step,
        doubled=doubled,
        restarted=restarted,
        standing=standing,
        queried=queried,
        unconfirmed=unconfirmed,
        zero_gradient=_placed(found.zero_gradient, rows, size),
        moves=_placed(found.moves, rows, size),
        promise_kept=_placed(found.promise_kept, rows, size),
        step_gain=_placed(found.step_gain, rows, size),
        random_gain=_placed(found.random_gain, rows, size),
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )


def _placed(values: npt.NDArray[Any], rows: Ints, size: int) -> npt.NDArray[Any]:
    """`values` (m, ...) at `rows` of `size` rows, zeros elsewhere."""
    column = np.zeros((size, *values.shape[1:]), dtype=values.dtype)
    column[rows] = values
    return column
