"""The smallest changes that attacks find without a budget, and one change for all images."""

from __future__ import annotations

import numpy as np

from audit import statistics
from audit.errors import MissingCapability, Undefined
from audit.evidence import MinimalPerturbations, UniversalEffect, UniversalPerturbation
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Norm, Unit


@metric(
    symbol="MMP",
    family=Family.BOUNDARY,
    better=Better.HIGHER,
    unit=Unit.PIXELS,
    source="FMN: Pintor et al. 2021 (arXiv 2102.12827); DDN: Rony et al. 2019 (arXiv 1811.09600)",
    variants=("linf", "l2", "l1"),
)
def median_minimal_perturbation(minimal_perturbations: MinimalPerturbations, variant: str) -> Estimate:
    """Median minimal perturbation.

    The median over examples of the smallest change in the norm that minimum-norm attacks find: FMN, in L2 the nearer of FMN and
    DDN, 100 gradients each; 0 where the clean image is wrong already, infinite where nothing was found. An upper bound on the
    true one.
    Undefined when: for half of the examples nothing was found.

    >>> from audit.metrics.minimal import median_minimal_perturbation
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> found = SimpleNamespace(searches=("FMN l2", "DDN l2"), distance=np.array([[0.0, 0.0], [0.5, 0.3], [np.inf, np.inf]]))
    >>> median_minimal_perturbation(minimal_perturbations=found, variant="l2").value
    0.3
    """
    distances, named = nearest(minimal_perturbations, variant)
    if not len(distances):
        raise Undefined("no example entered the search")
    lost = int(np.isinf(distances).sum())
    middle = float(np.median(distances))
    if not np.isfinite(middle):
        raise Undefined(f"nothing was found for {lost} of {len(distances)} examples")
    interval = statistics.quantile(distances, 0.5)
    wrong = int((distances == 0).sum())
    return Estimate(
        value=middle,
        samples=len(distances),
        interval=interval,
        why_no_interval=None if interval else "too few examples for an interval of the median",
        notes=(
            f"by {named}",
            *((f"{wrong} examples at 0: wrong on the clean image",) if wrong else ()),
            *((f"{lost} examples without a find count as infinitely far",) if lost else ()),
        ),
    )


def nearest(evidence: MinimalPerturbations, norm: str) -> tuple[np.ndarray, str]:
    """The smallest distance of each example (m,) over the searches in this norm, and what they are called."""
    columns = [place for place, search in enumerate(evidence.searches) if search.endswith(f" {norm}")]
    return evidence.distance[:, columns].min(axis=1), " and ".join(evidence.searches[place].split()[0] for place in columns)


@metric(
    symbol="UAP",
    family=Family.ADVERSARIAL,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source="Moosavi-Dezfooli et al. 2017 (arXiv 1610.08401); Shafahi et al. 2020 (arXiv 1811.11304)",
)
def universal_perturbation_success(universal_effect: UniversalEffect, universal_perturbation: UniversalPerturbation) -> Estimate:
    """Success of a universal perturbation.

    The share of clean-correct images that one and the same change breaks. It is found by 40 gradients on at most 256 images set
    apart, by what the model itself answers to them, and scored on others. It describes this perturbation: another search may find
    a worse one.
    Not applicable when: the threat is an L1 ball, in which it is not searched.
    Undefined when: no scored image is right on the clean image.
    """
    threat = universal_effect.threat
    if threat.norm is Norm.L1:
        raise MissingCapability("a universal perturbation is searched in Linf and L2 balls only")
    scored = int(universal_effect.scored.sum())
    if not scored:
        raise Undefined("no image that it could be scored on is right on the clean image")
    found = universal_perturbation
    return Estimate(
        value=float(universal_effect.broken.sum()) / scored,
        samples=scored,
        interval=None,
        why_no_interval="it describes this perturbation",
        notes=(f"found on {found.images} images set apart, of which it fools {found.fooled}; scored on others",),
    )
