"""How sure the model is when it is fooled, and how large the change was: means over S, the successes of the reference attack."""

from __future__ import annotations

import numpy as np
import scipy.special

from audit.errors import Undefined
from audit.evidence import Bools, Floats, ReferenceAttack
from audit.metrics.estimates import average
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit


def successes(reference_attack: ReferenceAttack) -> Bools:
    """S as a mask (n,).

    Raises:
        Undefined: no attack succeeded; a mean over nothing is not 0.
    """
    found = reference_attack.success
    if not found.any():
        raise Undefined("no attack succeeded")
    return found


def _probabilities(reference_attack: ReferenceAttack, rows: Bools) -> Floats:
    return np.asarray(scipy.special.softmax(reference_attack.adversarial_logits[rows], axis=1))


def _note(reference_attack: ReferenceAttack) -> tuple[str, ...]:
    return (f"over the {int(reference_attack.success.sum())} successes of {reference_attack.attack}",)


@metric(
    symbol="ACAC",
    family=Family.ADVERSARIAL,
    better=Better.LOWER,
    unit=Unit.PROBABILITY,
    source="Ling et al. 2019 (DEEPSEC)",
    paper_row="average confidence of adversarial class",
)
def average_confidence_of_adversarial_class(reference_attack: ReferenceAttack) -> Estimate:
    """Average confidence of the adversarial class.

    Mean over S of P(x')[F(x')].
    Reads as: how sure the model is of its wrong answers.
    Undefined when: no attack succeeded.

    >>> from audit.metrics.adversarial import average_confidence_of_adversarial_class
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(attack="PGD-40", success=np.array([True]), adversarial_logits=np.log([[0.2, 0.8]]))
    >>> round(average_confidence_of_adversarial_class(reference_attack=fooled).value, 3)
    0.8
    """
    rows = successes(reference_attack)
    return average(_probabilities(reference_attack, rows).max(axis=1), _note(reference_attack))


@metric(
    symbol="ACTC",
    family=Family.ADVERSARIAL,
    better=Better.HIGHER,
    unit=Unit.PROBABILITY,
    source="Ling et al. 2019 (DEEPSEC)",
    paper_row="average confidence of true class",
)
def average_confidence_of_true_class(reference_attack: ReferenceAttack) -> Estimate:
    """Average confidence of the true class.

    Mean over S of P(x')[y].
    Reads as: how much belief in the right answer survives a successful attack.
    Undefined when: no attack succeeded.

    >>> from audit.metrics.adversarial import average_confidence_of_true_class
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(
    ...     attack="PGD-40", success=np.array([True]), labels=np.array([0]), adversarial_logits=np.log([[0.2, 0.8]]))
    >>> round(average_confidence_of_true_class(reference_attack=fooled).value, 3)
    0.2
    """
    rows = successes(reference_attack)
    probabilities = _probabilities(reference_attack, rows)
    return average(probabilities[np.arange(len(probabilities)), reference_attack.labels[rows]], _note(reference_attack))


@metric(
    symbol="NTE",
    family=Family.ADVERSARIAL,
    better=Better.LOWER,
    unit=Unit.PROBABILITY,
    source="Ling et al. 2019 (DEEPSEC)",
    paper_row="noise tolerance estimation",
)
def noise_tolerance_estimation(reference_attack: ReferenceAttack) -> Estimate:
    """Noise tolerance estimation.

    Mean over S of P(x')[F(x')] - max over the other classes of P(x').
    Reads as: how much disturbance a successful adversarial image would itself tolerate.
    Undefined when: no attack succeeded.

    >>> from audit.metrics.adversarial import noise_tolerance_estimation
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(attack="PGD-40", success=np.array([True]), adversarial_logits=np.log([[0.3, 0.6, 0.1]]))
    >>> round(noise_tolerance_estimation(reference_attack=fooled).value, 3)
    0.3
    """
    rows = successes(reference_attack)
    ordered = np.sort(_probabilities(reference_attack, rows), axis=1)
    return average(ordered[:, -1] - ordered[:, -2], _note(reference_attack))


@metric(
    symbol="ALDp",
    family=Family.IMPERCEPTIBILITY,
    better=Better.NEITHER,
    unit=Unit.RATIO,
    source="Ling et al. 2019 (DEEPSEC); normalised as in Guo et al. 2021",
    paper_row="average Lp distortion",
    variants=("l0", "l2", "linf", "l2_absolute", "linf_absolute"),
    variant_units={"l2_absolute": Unit.PIXELS, "linf_absolute": Unit.PIXELS},
)
def average_lp_distortion(reference_attack: ReferenceAttack, variant: str) -> Estimate:
    """Average Lp distortion.

    Mean over S of norm_p(x' - x) / norm_p(x); for p = 0 the share of values changed after rounding to 8 bits. The variants
    `l2_absolute` and `linf_absolute` are the raw norms in [0, 1] pixel units.
    Undefined when: no attack succeeded, or an attacked image is all zero (no norm to divide by).

    >>> from audit.metrics.adversarial import average_lp_distortion
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(attack="PGD-40", success=np.array([True]), l2=np.array([0.5]), norm_l2=np.array([2.0]))
    >>> average_lp_distortion(reference_attack=fooled, variant="l2").value
    0.25
    """
    rows = successes(reference_attack)
    if variant == "l0":
        return average(reference_attack.l0[rows], _note(reference_attack))
    norm = variant.removesuffix("_absolute")
    raw = (reference_attack.linf if norm == "linf" else reference_attack.l2)[rows]
    if variant.endswith("_absolute"):
        return average(raw, _note(reference_attack))
    whole = (reference_attack.norm_linf if norm == "linf" else reference_attack.norm_l2)[rows]
    if (whole == 0).any():
        raise Undefined(f"{int((whole == 0).sum())} attacked images are all zero, so their relative distortion has no denominator")
    return average(raw / whole, _note(reference_attack))


@metric(
    symbol="ASS",
    family=Family.IMPERCEPTIBILITY,
    better=Better.NEITHER,
    unit=Unit.SSIM,
    source="Wang et al. 2004; Ling et al. 2019 (DEEPSEC)",
    paper_row="average structural similarity",
)
def average_structural_similarity(reference_attack: ReferenceAttack) -> Estimate:
    """Average structural similarity.

    Mean over S of SSIM(x', x), data range 1.0, Gaussian window of 11 pixels and sigma 1.5; on images smaller than 11 pixels the
    largest odd window that fits.
    Undefined when: no attack succeeded.

    >>> from audit.metrics.adversarial import average_structural_similarity
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(attack="PGD-40", success=np.array([True, False]), ssim=np.array([0.9, 0.1]))
    >>> average_structural_similarity(reference_attack=fooled).value
    0.9
    """
    return average(reference_attack.ssim[successes(reference_attack)], _note(reference_attack))


@metric(
    symbol="PSD",
    family=Family.IMPERCEPTIBILITY,
    better=Better.NEITHER,
    unit=Unit.SENSITIVITY,
    source="Luo et al. 2018 (arXiv 1801.04693); Ling et al. 2019 (DEEPSEC)",
    paper_row="perturbation sensitivity distance",
    variants=("sum", "per_pixel"),
)
def perturbation_sensitivity_distance(reference_attack: ReferenceAttack, variant: str) -> Estimate:
    """Perturbation sensitivity distance.

    Mean over S of sum_j |delta_j| / max(standard deviation of the 3x3 neighbourhood of x_j in its channel, 1/255); the variant
    `per_pixel` divides by the number of values.
    Reads as: changes in flat areas weigh more than changes in textured ones.
    Undefined when: no attack succeeded.

    >>> from audit.metrics.adversarial import perturbation_sensitivity_distance
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> fooled = SimpleNamespace(attack="PGD-40", success=np.array([True]), psd=np.array([64.0]), psd_per_pixel=np.array([1.0]))
    >>> perturbation_sensitivity_distance(reference_attack=fooled, variant="per_pixel").value
    1.0
    """
    column = reference_attack.psd if variant == "sum" else reference_attack.psd_per_pixel
    return average(column[successes(reference_attack)], _note(reference_attack))
