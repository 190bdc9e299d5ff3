"""What each kind of evidence costs at most, in passes per image, and where a cost rules it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.attacks.targets import passes as jacobian_passes
from audit.evidence import Evidence
from audit.fisher.queries import rows_asked
from audit.profiles import NOISE, Search
from audit.settings import Settings
from audit.vocabulary import Capability

# The exact Jacobian takes one backward pass per class and keeps K x K values per image.
MOST_CLASSES_EXACT = 100


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
    points = len(profile.curve) - 1
    gradients = Capability.GRADIENTS not in lacks
    match kind:
        case Evidence.PREDICTIONS:
            return 1, 0
        case Evidence.REFERENCE_ATTACK:
            return (profile.reference_steps + 2, profile.reference_steps) if gradients else (profile.reference_queries + 1, 0)
        case Evidence.WORST_CASE_WHITE_BOX:
            arms = [_white_box(arm, classes) for arm in (profile.linf, profile.l2, profile.l1)]
            return max(forward for forward, _ in arms), max(backward for _, backward in arms)
        case Evidence.WORST_CASE_BLACK_BOX:
            return _forward(profile.score_based), 0
        case Evidence.ACCURACY_EPSILON:
            if gradients:
                return points * (profile.curve_steps + 2), points * profile.curve_steps
            return points * (profile.curve_queries + 1), 0
        case Evidence.FISHER_SPECTRUM:
            return 1, classes
        case Evidence.FISHER_ESTIMATE:
            return sum(rows_asked(dimension, profile.fisher_directions)), 0
        case Evidence.TEMPERATURE:
            return 0, 0


def _white_box(arm: Sequence[Search], classes: int) -> tuple[int, int]:
    """Forward and backward passes of the searches that run with so many classes, and of the Jacobian that aims them."""
    run = [search for search in arm if search.target < classes]
    forward, backward = jacobian_passes(classes) if any(search.target and search.order == "box" for search in run) else (0, 0)
    # FAB asks once more after each of its steps, a search through three balls at the end of the first two.
    more = sum(search.steps if search.attack == "FAB" else 2 * (search.radius > 0) for search in run)
    differentiated = sum(search.steps for search in run if search.attack not in (NOISE, "Square"))
    return forward + more + _forward(run), backward + differentiated


def _forward(arm: Sequence[Search]) -> int:
    """The last iterate and the harness ask once more each."""
    return sum(search.steps + 2 for search in arm)


# Calls with one block before anything is measured: up to four forms of request, four looks, one at the outputs, five repetitions.
OPENING_CALLS = 14


def images_sent(kind: Evidence, settings: Settings, forward: int, dimension: int, samples: int) -> int:
    """Images sent at most to a model that is asked in whole blocks, the padding of the last one included.

    Args:
        kind: of the evidence.
        settings: profile and block size.
        forward: passes per image at most, as `passes` gives them.
        dimension: c h w.
        samples: how many examples are audited.

    >>> images_sent(Evidence.PREDICTIONS, Settings.of("quick"), 1, 784, 40)
    64
    """

    def whole_blocks(rows: int) -> int:
        return -(-rows // settings.block_rows) * settings.block_rows

    if kind is not Evidence.FISHER_ESTIMATE:
        # Attacks ask about all that is left of a chunk at once, which is a number of whole blocks.
        return forward * whole_blocks(samples)
    per_image = sum(map(whole_blocks, rows_asked(dimension, settings.profile.fisher_directions)))
    return min(samples, settings.profile.fisher_samples) * per_image
