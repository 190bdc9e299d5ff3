"""The accuracy-epsilon curve of a chunk: PGD on the margin with gradients, Square without."""

from __future__ import annotations

from functools import partial

from audit.attacks.epsilon_curve import accuracy_epsilon
from audit.attacks.pgd import pgd
from audit.attacks.square import square
from audit.attacks.stages import Attack
from audit.data import Chunk
from audit.evidence import AccuracyEpsilon, Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> AccuracyEpsilon:
    """The curve, resting on the white-box worst case at the threat's own epsilon if there are gradients, else the black-box one."""
    assert threat is not None, "a curve belongs to a threat"
    profile = settings.profile
    attack: Attack
    if Capability.GRADIENTS in classifier.lacks:
        arm, kind = "black-box", Evidence.WORST_CASE_BLACK_BOX
        attack = partial(square, queries=profile.curve_queries, seed=settings.seed, purpose="curve", stop_early=True)
    else:
        arm, kind = "white-box", Evidence.WORST_CASE_WHITE_BOX
        attack = partial(pgd, loss="margin", steps=profile.curve_steps, seed=settings.seed, purpose="curve", stop_early=True)
    evidence = needed.get_as(WorstCase, EvidenceKey(kind=kind, threat=threat))
    return accuracy_epsilon(classifier, chunk, evidence, settings.curve_epsilons(threat), arm, attack)
