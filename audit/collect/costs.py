"""What each kind of evidence costs at most, in passes per image, and where a cost rules it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit.attacks.directions import HALVINGS, POINTS, most_queries
from audit.attacks.health import RANDOM_TRIES, STEP_SIZES
from audit.attacks.sign_steps import passes as sign_step_passes
from audit.attacks.targets import passes as jacobian_passes
from audit.collect.boundary import DIRECTIONS
from audit.collect.certification import DRAWN, LOOKED
from audit.collect.minimal_perturbations import passes as minimal_passes
from audit.collect.noise_response import COPIES
from audit.collect.probe import NOISE_DRAWS, PROBE_EXAMPLES, PROBE_QUERIES, PROBE_STEPS, budgets
from audit.corruptions.families import FAMILIES, FRAMES
from audit.corruptions.parameters import KINDS, SEVERITIES
from audit.evidence import Evidence, EvidenceKey
from audit.fisher.exact import MOST_CLASSES_EXACT
from audit.fisher.lanczos import MOST_ITERATIONS, TRACE_PROBES
from audit.fisher.margin import MAX_OTHERS
from audit.fisher.queries import rows_asked
from audit.profiles import NOISE, TRANSFER, Search
from audit.settings import Settings
from audit.vocabulary import Capability, Norm

# Searches whose steps take no backward pass.
_ONLY_ASKING = frozenset({NOISE, "Square"})


def not_repeatable(kind: Evidence, classes: int, averaged: int) -> str | None:
    """Why a model that answers at random cannot be measured so with this many classes; None where it can."""
    if kind is Evidence.FISHER_SPECTRUM and classes > MOST_CLASSES_EXACT and averaged > 1:
        return (
            f"with more than {MOST_CLASSES_EXACT} classes the Fisher information is iterated, which needs a model that answers the "
            "same twice; read the query-only estimate"
        )
    return None


def passes(key: EvidenceKey, settings: Settings, lacks: Mapping[Capability, str], classes: int, dimension: int) -> tuple[int, int]:
    """Forward and backward passes per image at most.

    The probe is made on `PROBE_EXAMPLES` images only, Fisher evidence on the profile's `fisher_samples`, corruptions on its
    `corruption_samples` and sequences on its `sequence_samples`.
    """
    profile = settings.profile
    gradients, scores = Capability.GRADIENTS not in lacks, Capability.SCORES not in lacks
    match key.kind:
        case Evidence.PREDICTIONS:
            return 1, 0
        case Evidence.PROBE:
            assert key.threat is not None, "a probe belongs to a threat"
            times = len(budgets(key.threat, dimension, gradients=gradients)) if key.threat.epsilon > 0 else 0
            noise = NOISE_DRAWS + 1 if times else 0
            if gradients:
                return times * (PROBE_STEPS + 2) + noise, times * PROBE_STEPS
            return times * (PROBE_QUERIES + 1) + noise, 0
        case Evidence.GRADIENT_PROBE:
            assert key.threat is not None, "a probe belongs to a threat"
            if key.threat.epsilon == 0:
                return 0, 0
            asked = PROBE_QUERIES + 2 if key.threat.norm is Norm.LINF else 0
            at_the_images = 2 + 2 * len(STEP_SIZES) + RANDOM_TRIES
            return 3 + (2 * PROBE_STEPS + 3) + (PROBE_STEPS + 3) + asked + at_the_images, 3 * PROBE_STEPS + 2
        case Evidence.NEURON_PROFILE | Evidence.UNIVERSAL_PERTURBATION:
            # Of images set apart, not of those of the sample.
            return 0, 0
        case Evidence.UNIVERSAL_EFFECT:
            return 1, 0
        case Evidence.MINIMAL_PERTURBATIONS:
            return minimal_passes()
        case Evidence.NEURONS:
            return 1, 0
        case Evidence.ADVERSARIAL_NEURONS:
            # On the way of the reference attack: twice through the layers.
            return 2, 0
        case Evidence.REFERENCE_ATTACK:
            return (profile.reference_steps + 3, profile.reference_steps) if gradients else (profile.reference_queries + 2, 0)
        case Evidence.WORST_CASE_WHITE_BOX:
            assert key.threat is not None, "a worst case belongs to a threat"
            return _white_box(profile.white_box(key.threat.norm), classes)
        case Evidence.WORST_CASE_BLACK_BOX:
            assert key.threat is not None, "a worst case belongs to a threat"
            arm = profile.black_box(key.threat.norm, scores=scores)
            # From labels alone one search finds a distance per image, whose error the harness asks about with and without a budget.
            nearest = 0 if scores else profile.nearest.steps + 2
            return nearest + _forward(arm) + _crafted(arm, lacks), 0
        case Evidence.ACCURACY_EPSILON:
            if not scores:
                # The distances that the black-box arm found are the whole curve.
                return 0, 0
            # What the threat's own epsilon breaks is attacked at smaller ones only, what survives it at larger ones only.
            points = max(sum(each > 1 for each in profile.curve), sum(each < 1 for each in profile.curve))
            if not gradients:
                return points * (profile.curve_queries + 1), 0
            assert key.threat is not None, "a curve belongs to a threat"
            return _white_box(profile.white_box(key.threat.norm)[: profile.curve_stages], classes, points)
        case Evidence.FISHER_SPECTRUM:
            if classes <= MOST_CLASSES_EXACT:
                return 1, classes
            iterated = 1 + TRACE_PROBES + 2 * 2 * MOST_ITERATIONS + min(MAX_OTHERS, classes - 1) + 1
            return iterated, iterated
        case Evidence.FISHER_ESTIMATE:
            return sum(rows_asked(dimension, profile.fisher_directions)), 0
        case Evidence.ARCHITECTURE_BOUND:
            # The weights are looked at; one image of zeros runs through, to see the shapes inside.
            return 0, 0
        case Evidence.BOUNDARY_DISTANCE:
            return most_queries(DIRECTIONS), 0
        case Evidence.CERTIFICATION:
            return LOOKED + DRAWN, 0
        case Evidence.BOUNDARY_STEPS:
            return sign_step_passes(classes)
        case Evidence.NOISE_RESPONSE:
            assert key.threat is not None, "noise belongs to a threat"
            return (COPIES, 0) if key.threat.norm is Norm.LINF else (0, 0)
        case Evidence.CORRUPTIONS:
            return len(settings.corrupted_kinds or KINDS) * len(SEVERITIES), 0
        case Evidence.SEQUENCES:
            return len(FAMILIES) * FRAMES, 0
        case Evidence.REFERENCE_PREDICTIONS | Evidence.REFERENCE_CORRUPTIONS | Evidence.REFERENCE_SEQUENCES:
            # Paid for once, by the reference model itself.
            return 0, 0
        case Evidence.TEMPERATURE | Evidence.PROBE_SAMPLE | Evidence.GRADIENT_HEALTH:
            return 0, 0


def examples_at_most(kind: Evidence, settings: Settings) -> int | None:
    """On how many examples a kind is gathered at most; None where it is on all."""
    match kind:
        case Evidence.PROBE | Evidence.GRADIENT_PROBE | Evidence.BOUNDARY_STEPS:
            return PROBE_EXAMPLES
        case Evidence.FISHER_SPECTRUM | Evidence.FISHER_ESTIMATE:
            return settings.profile.fisher_samples
        case Evidence.BOUNDARY_DISTANCE:
            return settings.profile.boundary_samples
        case Evidence.CERTIFICATION:
            return settings.profile.certified_samples
        case Evidence.CORRUPTIONS:
            return settings.profile.corruption_samples
        case Evidence.SEQUENCES:
            return settings.profile.sequence_samples
        case Evidence.MINIMAL_PERTURBATIONS:
            return settings.profile.minimal_samples
        case Evidence.ARCHITECTURE_BOUND:
            return 1
        case Evidence.NEURON_PROFILE | Evidence.UNIVERSAL_PERTURBATION:
            # On images set apart, of which there are no more for a larger sample.
            return 1
        case _:
            return None


def escalated_passes(key: EvidenceKey, settings: Settings, classes: int) -> tuple[int, int] | None:
    """What `passes` become where the probe finds that gradients cannot be believed; None where that changes nothing."""
    if key.kind is not Evidence.WORST_CASE_WHITE_BOX or key.threat is None:
        return None
    return _white_box(settings.profile.escalation[key.threat.norm], classes)


def _white_box(arm: Sequence[Search], classes: int, times: int = 1) -> tuple[int, int]:
    """Forward and backward passes of the searches that run with so many classes, `times` over, and of one Jacobian to aim."""
    run = [search for search in arm if search.target < classes]
    forward, backward = jacobian_passes(classes) if any(search.target and search.order == "box" for search in run) else (0, 0)
    return forward + times * _forward(run), backward + times * sum(
        search.steps for search in run if search.attack not in _ONLY_ASKING
    )


def _forward(arm: Sequence[Search]) -> int:
    """The last iterate and the harness ask once more each; FAB asks where each step ended, and closes in at its end."""
    asked = (2 * search.steps + 8 if search.attack == "FAB" else search.steps + 2 for search in arm if search.attack != TRANSFER)
    return sum(asked)


def _crafted(arm: Sequence[Search], lacks: Mapping[Capability, str]) -> int:
    """Images crafted on a surrogate, each of which the harness asks about once."""
    return 0 if Capability.SURROGATE in lacks else sum(search.attack == TRANSFER for search in arm)


# Calls with one block before anything is measured: up to four forms of request, four looks, one at the outputs, five repetitions.
OPENING_CALLS = 14
# Averaged answers with the same block that tell how far the mean itself still moves.
AVERAGED_OPENING_CALLS = 2


def images_sent(kind: Evidence, settings: Settings, forward: int, dimension: int, samples: int, averaged: int = 1) -> int:
    """Images sent at most to a model that is asked in whole blocks, the padding of the last one included.

    Args:
        kind: of the evidence.
        settings: profile and block size.
        forward: passes per image at most, as `passes` gives them.
        dimension: c h w.
        samples: how many examples are audited.
        averaged: how many calls an answer is the mean of; `forward` counts them already.

    >>> images_sent(Evidence.PREDICTIONS, Settings.of("quick"), 1, 784, 40)
    64
    """

    def whole_blocks(rows: int) -> int:
        return -(-rows // settings.block_rows) * settings.block_rows

    if kind is Evidence.PROBE:
        # Its examples may lie in several chunks, each asked about in whole blocks.
        parts = -(-samples // settings.chunk_rows)
        return forward * min(whole_blocks(samples), whole_blocks(PROBE_EXAMPLES) + (parts - 1) * settings.block_rows)
    if kind is Evidence.BOUNDARY_DISTANCE:
        # The rays of one image are walked together, the few that are left at the end too.
        outwards, halvings = whole_blocks(2 * DIRECTIONS) * POINTS, whole_blocks(2 * DIRECTIONS) * HALVINGS
        return averaged * min(samples, settings.profile.boundary_samples) * (outwards + halvings)
    if kind in (Evidence.CERTIFICATION, Evidence.CORRUPTIONS, Evidence.SEQUENCES):
        # Their examples may lie in several chunks, and copies are made in several parts, each asked about in whole blocks.
        most = examples_at_most(kind, settings)
        assert most is not None, "these kinds are gathered on the first examples only"
        return forward * whole_blocks(min(samples, most))
    if kind is not Evidence.FISHER_ESTIMATE:
        # Attacks ask about all that is left of a chunk at once, which is a number of whole blocks.
        return forward * whole_blocks(samples)
    per_image = sum(map(whole_blocks, rows_asked(dimension, settings.profile.fisher_directions)))
    return averaged * min(samples, settings.profile.fisher_samples) * per_image
