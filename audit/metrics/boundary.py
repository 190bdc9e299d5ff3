"""Distances to the decision boundary, and how much the loss moves in noise (Guo et al. 2021/2023)."""

from __future__ import annotations

from audit.errors import MissingCapability, Undefined
from audit.evidence import Bools, BoundaryDistance, BoundarySteps, Floats, NoiseResponse
from audit.metrics.estimates import average
from audit.metrics.neurons import GUO
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Norm, Unit

# Above this share of floored probabilities the loss says nothing.
MOST_FLOORED = 0.01


def _distances(distance: Floats, censored: Bools, notes: tuple[str, ...]) -> Estimate:
    if not len(distance):
        raise Undefined("none of the examples looked at is right on the clean image")
    cut = int(censored.sum())
    at_least = (
        (f"at least: {cut} of {len(distance)} searches found no boundary and count with the distance up to which they looked",)
        if cut
        else ()
    )
    return average(distance, (*at_least, *notes))


@metric(
    symbol="EBD",
    family=Family.BOUNDARY,
    better=Better.HIGHER,
    unit=Unit.PIXELS,
    source=f"{GUO}; He et al. 2018 (ICLR)",
    paper_row="EBD, EBD-2",
)
def empirical_boundary_distance(boundary_distance: BoundaryDistance) -> Estimate:
    """Empirical boundary distance.

    Mean over clean-correct examples of the smallest root mean square change (over all values of the image, realised after clipping
    to [0, 1]) that changes the label along m = 100 random orthogonal directions, followed both ways: 16 distances up to 0.5, each
    1.5 times the one before, then bisection. Random directions miss what an attack finds: no worst case, and no guarantee.
    A search that finds nothing counts with the distance up to which it looked, and makes the value "at least".
    Undefined when: no example looked at is right on the clean image.
    Differs from the source in: distances are realised after clipping, and do not grow with the size of the image.
    """
    return _distances(
        boundary_distance.distance, boundary_distance.censored, (f"{boundary_distance.directions} directions, both signs",)
    )


@metric(
    symbol="EBD-2",
    family=Family.BOUNDARY,
    better=Better.HIGHER,
    unit=Unit.PIXELS,
    source=GUO,
    paper_row="EBD, EBD-2",
)
def empirical_boundary_distance_adversarial(boundary_steps: BoundarySteps) -> Estimate:
    """Empirical boundary distance by sign steps.

    Mean over at most 100 clean-correct examples of the smallest Linf change that changes the label, found by growing sign steps
    towards each of the min(9, K - 1) classes with the smallest logit gap, then bisection; exact on a linear model, an upper bound
    on the true distance elsewhere. A search that finds nothing up to 0.5 counts with 0.5, and makes the value "at least".
    Undefined when: no example is right on the clean image.

    >>> from audit.metrics.boundary import empirical_boundary_distance_adversarial
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> steps = SimpleNamespace(distance=np.array([0.1, 0.5]), censored=np.array([False, True]), targets=9)
    >>> found = empirical_boundary_distance_adversarial(boundary_steps=steps)
    >>> found.value, found.notes[0].partition(":")[0]
    (0.3, 'at least')
    """
    return _distances(boundary_steps.distance, boundary_steps.censored, (f"towards {boundary_steps.targets} classes",))


@metric(
    symbol="ε-ENI",
    family=Family.BOUNDARY,
    better=Better.LOWER,
    unit=Unit.NATS_PER_PIXEL,
    source=GUO,
    paper_row="ε-ENI",
)
def empirical_noise_insensitivity(noise_response: NoiseResponse) -> Estimate:
    """Empirical noise insensitivity.

    Mean over examples and M = 10 copies mu, uniform in the Linf ball of the threat and clipped to [0, 1], of
    |l(x) - l(mu)| / Linf(x - mu), l the cross-entropy from the log-softmax: nats that the loss moves per unit of pixel range.
    Not applicable when: the threat is not an Linf ball.
    Undefined when: epsilon is 0, or more than 1 % of the losses met the floor of probabilities, behind which they cannot move.
    """
    evidence = noise_response
    if evidence.threat.norm is not Norm.LINF:
        raise MissingCapability("the noise is drawn in an Linf ball; ask for an Linf threat")
    if evidence.threat.epsilon == 0:
        raise Undefined("there is no noise at epsilon 0")
    seen = evidence.answered > 0
    if not seen.any():
        raise Undefined("the model answers no noisy copy")
    asked = int(evidence.answered.sum()) + len(evidence.ratio)
    floored = int(evidence.floored.sum())
    if floored > MOST_FLOORED * asked:
        raise Undefined(
            f"{floored} of {asked} probabilities of the true class are too small to be told from 0, so losses cannot move"
        )
    lost = evidence.copies * len(evidence.ratio) - int(evidence.answered.sum())
    left_out = (f"{lost} copies left out: the model does not answer them",) if lost else ()
    met = (f"{floored} losses at the floor",) if floored else ()
    return average(evidence.ratio[seen], (f"{evidence.copies} copies of each image", *left_out, *met))
