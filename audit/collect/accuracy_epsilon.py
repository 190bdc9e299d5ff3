"""The accuracy-epsilon curve of a chunk: PGD on the margin with gradients, Square with scores, HopSkipJump with labels only."""

from __future__ import annotations

from functools import partial

from audit.attacks.epsilon_curve import accuracy_epsilon, accuracy_epsilon_by_distance
from audit.attacks.hop_skip_jump import hop_skip_jump
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
    profile, budgets = settings.profile, settings.curve_epsilons(threat)
    attack: Attack
    if Capability.SCORES in classifier.lacks:
        evidence = needed.get_as(WorstCase, EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=threat))
        closest = partial(hop_skip_jump, queries=profile.curve_queries, seed=settings.seed, purpose="curve")
        return accuracy_epsilon_by_distance(classifier, chunk, evidence, budgets, "black-box", closest)
    if Capability.GRADIENTS in classifier.lacks:
        arm, kind = "black-box", Evidence.WORST_CASE_BLACK_BOX
        attack = partial(square, queries=profile.curve_queries, seed=settings.seed, purpose="curve", stop_early=True)
    else:
        arm, kind = "white-box", Evidence.WORST_CASE_WHITE_BOX
        attack = partial(pgd, loss="margin", steps=profile.curve_steps, seed=settings.seed, purpose="curve", stop_early=True)
    evidence = needed.get_as(WorstCase, EvidenceKey(kind=kind, threat=threat))
    return accuracy_epsilon(classifier, chunk, evidence, budgets, arm, attack)
