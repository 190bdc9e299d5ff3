"""The worst case per example, one collector per arm."""

from __future__ import annotations

from audit.attacks.cascade import black_box_stages, white_box_stages, worst_case
from audit.collect.predictions import clean
from audit.data import Chunk
from audit.evidence import EvidenceStore, WorstCase
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Threat


def collect_white_box(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> WorstCase:
    """FGSM, then the profile's PGD stages, on the survivors of the stage before."""
    assert threat is not None, "a worst case belongs to a threat"
    stages = white_box_stages(settings.profile, settings.seed)
    return worst_case(classifier, chunk, clean(needed).logits, threat, stages, _shown(settings))


def collect_black_box(
    classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None
) -> WorstCase:
    """Random noise, then Square, on the survivors."""
    assert threat is not None, "a worst case belongs to a threat"
    stages = black_box_stages(settings.profile, settings.seed)
    return worst_case(classifier, chunk, clean(needed).logits, threat, stages, _shown(settings))


def _shown(settings: Settings) -> int:
    return settings.shown_failures if settings.keep_images else 0
