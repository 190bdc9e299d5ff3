"""The accuracy-epsilon curve of a chunk: by the first white-box searches, by Square without gradients, or from known distances."""

from __future__ import annotations

from audit.attacks.epsilon_curve import accuracy_epsilon, accuracy_epsilon_by_distance
from audit.attacks.stages import stages
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import AccuracyEpsilon, Evidence, EvidenceKey, EvidenceStore, WorstCase
from audit.models import Classifier
from audit.profiles import Search
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def collect(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> AccuracyEpsilon:
    """The curve, resting on the white-box worst case at the threat's own epsilon if there are gradients, else the black-box one."""
    assert threat is not None, "a curve belongs to a threat"
    profile, budgets = settings.profile, settings.curve_epsilons(threat)
    if Capability.SCORES in classifier.lacks:
        evidence = needed.get_as(WorstCase, EvidenceKey(kind=Evidence.WORST_CASE_BLACK_BOX, threat=threat))
        return accuracy_epsilon_by_distance(evidence, budgets, "black-box")
    if Capability.GRADIENTS in classifier.lacks:
        arm, kind = "black-box", Evidence.WORST_CASE_BLACK_BOX
        searches: tuple[Search, ...] = (Search(attack="Square", steps=profile.curve_queries),)
    else:
        arm, kind = "white-box", Evidence.WORST_CASE_WHITE_BOX
        searches = profile.white_box(threat.norm)[: profile.curve_stages]
    evidence = needed.get_as(WorstCase, EvidenceKey(kind=kind, threat=threat))
    attacks = stages(searches, settings.seed, classifier.classes, purpose="curve")
    return accuracy_epsilon(classifier, chunk, evidence, clean(needed).logits, budgets, arm, attacks)
