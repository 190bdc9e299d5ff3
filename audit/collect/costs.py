"""What each kind of evidence costs at most, in passes per image, and where a cost rules it out."""

from __future__ import annotations

from collections.abc import Mapping

from audit.evidence import Evidence
from audit.settings import Settings
from audit.vocabulary import Capability

# The exact Jacobian takes one backward pass per class and keeps K x K values per image.
MOST_CLASSES_EXACT = 100
# Four step sizes are tried per image before the directions are spent.
LADDER_STEPS = 4


def too_expensive(kind: Evidence, classes: int) -> str | None:
    """Why a model with this many classes is not measured exactly; None where it is."""
    if kind is Evidence.FISHER_SPECTRUM and classes > MOST_CLASSES_EXACT:
        return (
            f"the exact Fisher information takes one backward pass per class, and {classes} classes are more than "
            f"{MOST_CLASSES_EXACT}; read the query-only estimate"
        )
    return None


def passes(kind: Evidence, settings: Settings, lacks: Mapping[Capability, str], classes: int, dimension: int) -> tuple[int, int]:
    """Forward and backward passes per image at most; Fisher evidence is gathered on the profile's `fisher_samples` images only."""
    profile = settings.profile
    steps = sum(count for _, count in profile.pgd_stages)
    points = len(profile.curve) - 1
    gradients = Capability.GRADIENTS not in lacks
    match kind:
        case Evidence.PREDICTIONS:
            return 1, 0
        case Evidence.REFERENCE_ATTACK:
            return (profile.reference_steps + 2, profile.reference_steps) if gradients else (profile.reference_queries + 1, 0)
        case Evidence.WORST_CASE_WHITE_BOX:
            return steps + 2 + 2 * len(profile.pgd_stages), steps + 1
        case Evidence.WORST_CASE_BLACK_BOX:
            return profile.noise_draws + profile.square_queries + 2, 0
        case Evidence.ACCURACY_EPSILON:
            if gradients:
                return points * (profile.curve_steps + 2), points * profile.curve_steps
            return points * (profile.square_queries + 1), 0
        case Evidence.FISHER_SPECTRUM:
            return 1, classes
        case Evidence.FISHER_ESTIMATE:
            return 1 + 2 * LADDER_STEPS + 2 * min(profile.fisher_directions, dimension), 0
        case Evidence.TEMPERATURE:
            return 0, 0
