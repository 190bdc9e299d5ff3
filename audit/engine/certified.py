"""The certified-accuracy curve as the report tells it."""

from __future__ import annotations

import numpy as np

from audit import statistics
from audit.evidence import Certification, Evidence, EvidenceKey, EvidenceStore
from audit.metrics.certification import RADII, of_the_label, radii
from audit.result import CertifiedCurve, CertifiedPoint

# The radii of the catalogue and the middles between them.
_STEPS = 2 * len(RADII) - 1


def certified(store: EvidenceStore) -> CertifiedCurve | None:
    """Certified accuracy against the radius; None where nothing entered the certification."""
    key = EvidenceKey(kind=Evidence.CERTIFICATION)
    if key not in store:
        return None
    evidence = store.get_as(Certification, key)
    if not len(evidence.positions):
        return None
    found = of_the_label(evidence)
    points = []
    for radius in np.linspace(float(RADII[0]), float(RADII[-1]), _STEPS).round(6).tolist():
        within = int((found >= radius).sum())
        interval = statistics.proportion(within, len(found))
        points.append(CertifiedPoint(radius=radius, accuracy=within / len(found), low=interval.low, high=interval.high))
    return CertifiedCurve(
        sigma=evidence.sigma,
        looked=evidence.looked,
        drawn=evidence.drawn,
        alpha=evidence.alpha,
        samples=len(found),
        abstained=float((radii(evidence) < 0).mean()),
        average_radius=float(np.maximum(found, 0.0).mean()),
        right_in_noise=float(evidence.right.sum() / (evidence.drawn * len(found))),
        right_clean=float(evidence.clean.mean()),
        points=tuple(points),
    )
