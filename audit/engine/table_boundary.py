"""Per-example columns of distances, certificates and noise: one row per sampled example, null where it was not searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from audit.evidence import (
    BoundaryDistance,
    BoundarySteps,
    Certification,
    EvidenceStore,
    Ints,
    MinimalPerturbations,
    NoiseResponse,
    UniversalEffect,
)
from audit.metrics.certification import RADII, of_the_label
from audit.metrics.minimal import nearest
from audit.metrics.spec import key_of


def spread(values: npt.NDArray[Any], positions: Ints, rows: int) -> pa.Array:
    """Values of a subset of the examples as a whole column, null elsewhere."""
    whole = np.zeros(rows, dtype=values.dtype)
    missing = np.ones(rows, dtype=bool)
    whole[positions], missing[positions] = values, False
    return pa.array(whole, mask=missing)


def boundary_columns(store: EvidenceStore, rows: int) -> dict[str, pa.Array]:
    """A column named like a metric's key holds what that metric is the mean, the median or the share of."""
    found: dict[str, pa.Array] = {}
    for key, value in store.items():
        match value:
            case BoundaryDistance():
                found["empirical_boundary_distance"] = spread(value.distance, value.positions, rows)
                found["empirical_boundary_distance_censored"] = spread(value.censored, value.positions, rows)
            case BoundarySteps():
                found["empirical_boundary_distance_adversarial"] = spread(value.distance, value.positions, rows)
                found["empirical_boundary_distance_adversarial_censored"] = spread(value.censored, value.positions, rows)
            case NoiseResponse() if len(value.ratio):
                name = key_of("empirical_noise_insensitivity", None, key.threat)
                found[name] = pa.array(value.ratio, mask=value.answered == 0)
            case Certification() if len(value.positions):
                radius = of_the_label(value)
                found["average_certified_radius"] = spread(np.maximum(radius, 0.0), value.positions, rows)
                for bound in RADII:
                    found[f"certified_accuracy/radius_{bound}"] = spread(radius >= float(bound), value.positions, rows)
            case MinimalPerturbations():
                for norm in ("linf", "l2", "l1"):
                    distance, _ = nearest(value, norm)
                    near = np.isfinite(distance)
                    found[f"minimal_perturbation_{norm}"] = spread(distance[near], value.positions[near], rows)
            case UniversalEffect() if value.scored.any():
                name = key_of("universal_perturbation_success", None, key.threat)
                found[name] = pa.array(value.broken, mask=~value.scored)
            case _:
                pass
    return found
