"""The worst case per example, one collector per arm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from audit.attacks.cascade import worst_case
from audit.attacks.nearest_errors import NearestErrors
from audit.attacks.stages import stages
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, GradientHealth, WorstCase
from audit.models import Classifier
from audit.models.composed import surrogate_of
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def collect_white_box(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> WorstCase:
    """The profile's white-box arm for the threat's norm, each search on the survivors of the one before.

    Where the probe found that gradients cannot be believed, the longest search there is instead, which does not follow them alone.
    """
    assert threat is not None, "a worst case belongs to a threat"
    health = needed.get_as(GradientHealth, EvidenceKey(kind=Evidence.GRADIENT_HEALTH, threat=threat))
    own, escalated = settings.profile.white_box(threat.norm), settings.profile.escalation[threat.norm]
    arm = stages(own if health.believed else escalated, settings.seed, classifier.classes)
    return worst_case(classifier, chunk, clean(needed).logits, threat, arm, _shown(settings))


def collect_black_box(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> WorstCase:
    """The profile's searches that only ask, as much as the model answers, each on the survivors of the one before.

    Where it answers with labels only, the first one looks for the nearest error of every example, whatever its distance.
    """
    assert threat is not None, "a worst case belongs to a threat"
    searches = settings.profile.black_box(threat.norm, scores=Capability.SCORES not in classifier.lacks)
    arm = stages(searches, settings.seed, classifier.classes, surrogate_of(classifier))
    logits, shown = clean(needed).logits, _shown(settings)
    if Capability.SCORES not in classifier.lacks:
        return worst_case(classifier, chunk, logits, threat, arm, shown)
    first = NearestErrors(settings.profile.nearest, settings.seed, len(chunk.labels))
    found = worst_case(classifier, chunk, logits, threat, (first.stage, *arm), shown)
    return replace(found, nearest=np.minimum(found.nearest, first.distance))


def _shown(settings: Settings) -> int:
    return settings.shown_failures if settings.keep_images else 0
