"""A short catalogue, for tests that are about what is done with an audit and not about what it measures."""

from __future__ import annotations

import pytest

from audit.engine import subject
from audit.evidence import Evidence


def leave_out_costly_metrics(patch: pytest.MonkeyPatch) -> None:
    """Audits measure clean and attacked accuracy, calibration, corruptions, Fisher and margin: half the time of all."""
    costly = {
        *(Evidence.BOUNDARY_DISTANCE, Evidence.BOUNDARY_STEPS, Evidence.CERTIFICATION, Evidence.MINIMAL_PERTURBATIONS),
        *(Evidence.UNIVERSAL_EFFECT, Evidence.NEURONS, Evidence.ADVERSARIAL_NEURONS),
    }
    patch.setattr(subject, "CATALOG", tuple(metric for metric in subject.CATALOG if costly.isdisjoint(metric.needs)))
