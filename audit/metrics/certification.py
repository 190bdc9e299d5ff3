"""Certified accuracy of the smoothed classifier: within which L2 radius its answer provably stays.

The classifier that is certified answers what the model answers most often to an image with Gaussian noise, clipped to [0, 1]. It is
not the model as it is deployed, unless that is deployed with the noise.
"""

from __future__ import annotations

import numpy as np
import scipy.stats

from audit.errors import Undefined
from audit.evidence import Certification, Floats
from audit.metrics.estimates import average, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "Cohen et al. 2019 (arXiv 1902.02918)"
RADII = ("0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6")


def radii(evidence: Certification) -> Floats:
    """The certified L2 radius of each example (m,), whether or not the answer is right; negative where it abstains.

    sigma Phi^-1(p), p the one-sided Clopper-Pearson bound at 1 - alpha of the share of copies that agree; abstains at p <= 1/2.

    >>> from types import SimpleNamespace
    >>> radii(SimpleNamespace(sigma=0.25, alpha=0.001, drawn=1000, agreed=np.array([1000, 990, 500]))).round(4).tolist()
    [0.6158, 0.4945, -1.0]
    """
    agreed = evidence.agreed
    bound = scipy.stats.beta.ppf(evidence.alpha, np.maximum(agreed, 1), evidence.drawn - agreed + 1)
    bound = np.where(agreed > 0, bound, 0.0)
    return np.where(bound > 0.5, evidence.sigma * scipy.stats.norm.ppf(np.maximum(bound, 0.5)), -1.0)


def _of_the_label(evidence: Certification) -> Floats:
    """Certified radii (m,), negative where the smoothed classifier abstains or is wrong."""
    if not len(evidence.positions):
        raise Undefined("no example entered the certification")
    return np.where(evidence.top == evidence.labels, radii(evidence), -1.0)


def _notes(evidence: Certification) -> tuple[str, ...]:
    found = radii(evidence)
    certified, most = int((found >= 0).sum()), evidence.sigma * scipy.stats.norm.ppf(evidence.alpha ** (1 / evidence.drawn))
    noisy, clean = evidence.right.sum() / (evidence.drawn * len(found)), evidence.clean.mean()
    return (
        f"of the smoothed classifier: sigma = {evidence.sigma:g}, n0 = {evidence.looked}, n = {evidence.drawn}, "
        f"alpha = {evidence.alpha:g}, fixed in advance; the largest provable radius is {most:.3f} in L2",
        f"{len(found) - certified} of {len(found)} abstain; "
        f"at most {evidence.alpha * certified:.2g} of {certified} certificates are expected to be false",
        f"the model is right on {noisy:.1%} of the noisy copies and on {clean:.1%} of these images without noise: one that was not "
        "trained with such noise gets small certificates, which say little about it as it is deployed",
    )


@metric(
    symbol="CertA",
    family=Family.CERTIFICATION,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source=SOURCE,
    variants=tuple(f"radius_{radius}" for radius in RADII),
)
def certified_accuracy(certification: Certification, variant: str) -> Estimate:
    """Certified accuracy by randomised smoothing.

    The share of examples that the smoothed classifier answers rightly, and provably goes on to within this L2 radius (0: rightly
    and without abstaining), each certificate wrong with probability alpha at most. Radii count in pixel range, as L2 threats do.
    Abstentions and wrong answers count as not certified. A lower bound for the smoothed classifier, of which alone it holds.
    Differs from the source in: noisy images are clipped to [0, 1] before the model sees them; the clipping is part of what is
    smoothed.

    >>> from audit.metrics.certification import certified_accuracy
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> counts = SimpleNamespace(sigma=0.25, alpha=0.001, looked=100, drawn=1000, positions=np.arange(4), labels=np.zeros(4, int),
    ...     top=np.array([0, 0, 0, 1]), agreed=np.array([1000, 900, 500, 1000]), right=np.array([1000, 900, 500, 0]),
    ...     clean=np.array([True, True, True, False]))
    >>> [certified_accuracy(certification=counts, variant=f"radius_{r}").value for r in ("0", "0.5")]
    [0.5, 0.25]
    """
    radius = float(variant.removeprefix("radius_"))
    return share(_of_the_label(certification) >= radius, _notes(certification))


@metric(
    symbol="ACR", family=Family.CERTIFICATION, better=Better.HIGHER, unit=Unit.PIXELS, source="Zhai et al. 2020 (arXiv 2001.02378)"
)
def average_certified_radius(certification: Certification) -> Estimate:
    """Average certified radius, L2.

    The mean over examples of the radius that is certified for the label, 0 where the smoothed classifier abstains or is wrong.
    """
    return average(np.maximum(_of_the_label(certification), 0.0), _notes(certification))
