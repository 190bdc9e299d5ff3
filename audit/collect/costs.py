"""What each kind of evidence costs at most, in passes per image, and where a cost rules it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.attacks.targets import passes as jacobian_passes
from audit.evidence import Evidence
from audit.fisher.queries import rows_asked
from audit.profiles import Search
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
            # What the threat's own epsilon breaks is attacked at smaller ones only, what survives it at larger ones only.
            points = max(sum(each > 1 for each in profile.curve), sum(each < 1 for each in profile.curve))
            if not gradients:
                return points * (profile.curve_queries + 1), 0
            arms = [
                _white_box(arm[: profile.curve_stages], classes, times=points) for arm in (profile.linf, profile.l2, profile.l1)
            ]
            return max(forward for forward, _ in arms), max(backward for _, backward in arms)
        case Evidence.FISHER_SPECTRUM:
            return 1, classes
        case Evidence.FISHER_ESTIMATE:
            return sum(rows_asked(dimension, profile.fisher_directions)), 0
        case Evidence.TEMPERATURE:
            return 0, 0


def _white_box(arm: Sequence[Search], classes: int, times: int = 1) -> tuple[int, int]:
    """Forward and backward passes of the searches that run with so many classes, `times` over, and of one Jacobian to aim."""
    run = [search for search in arm if search.target < classes]
    forward, backward = jacobian_passes(classes) if any(search.target and search.order == "box" for search in run) else (0, 0)
    return forward + times * _forward(run), backward + times * sum(search.steps for search in run)


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
