"""Sensitivity without an attack: how far the decision boundary would be if the logits were linear."""

from __future__ import annotations

import numpy as np

from audit.errors import Undefined
from audit.evidence import Bools, FisherSpectrum, Floats
from audit.metrics.estimates import quantile, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Norm, Threat, Unit

SOURCE = "Hein & Andriushchenko 2017 (arXiv 1705.08475), first order"
FIRST_ORDER = "first order, not a guarantee"
# Honesty check 9.
MOST_ZERO_GRADIENTS = 0.05


@metric(
    symbol="ρ",
    family=Family.FISHER,
    better=Better.HIGHER,
    unit=Unit.PIXELS,
    source=SOURCE,
    variants=("linf", "l2", "l1"),
)
def linearised_margin_radius(fisher_spectrum: FisherSpectrum, variant: str) -> Estimate:
    """Linearised margin radius, median.

    Per example the minimum over the other classes (with more than 20, those of the 20 highest logits) of (logit gap) / (dual norm
    of the gradient difference), at most the largest distance inside [0, 1]; 0 where misclassified. First order: not a guarantee.
    Undefined when: more than 5 % of the examples have all-zero gradients, which say nothing about distances.
    """
    _linearisable(fisher_spectrum)
    values = {"linf": fisher_spectrum.margin_linf, "l2": fisher_spectrum.margin_l2, "l1": fisher_spectrum.margin_l1}[variant]
    return quantile(values, 0.5, (FIRST_ORDER,))


@metric(
    symbol="LM",
    family=Family.FISHER,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source=SOURCE,
)
def linearised_margin_share(fisher_spectrum: FisherSpectrum, threat: Threat) -> Estimate:
    """Images with a linearised margin above epsilon.

    The share of examples that are correct with a linearised margin radius larger than the threat's epsilon: of a random part of the
    sample, whose size is n, clean errors included. An example with all-zero gradients has no margin and does not count as larger.
    First order: not a guarantee.
    Undefined when: more than 5 % of the examples have all-zero gradients.

    >>> from audit.metrics.margin import linearised_margin_share
    >>> from audit.vocabulary import Threat
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> margins = SimpleNamespace(margin_l2=np.array([0.0, 0.4, 0.6, 0.7]), zero_gradient=np.zeros(4, dtype=bool))
    >>> linearised_margin_share(fisher_spectrum=margins, threat=Threat.parse("l2:0.5")).value
    0.5
    """
    _linearisable(fisher_spectrum)
    return share(exceeds(fisher_spectrum, threat), (FIRST_ORDER,))


def exceeds(evidence: FisherSpectrum, threat: Threat) -> Bools:
    """Whether each example (n,) is correct with a margin larger than the threat's epsilon."""
    columns = {Norm.LINF: "margin_linf", Norm.L2: "margin_l2", Norm.L1: "margin_l1"}
    values: Floats = getattr(evidence, columns[threat.norm])
    return np.asarray((values > threat.epsilon) & ~evidence.zero_gradient)


def _linearisable(evidence: FisherSpectrum) -> None:
    zero = evidence.zero_gradient
    if len(zero) == 0:
        raise Undefined("no example entered the Fisher evidence")
    if float(zero.mean()) > MOST_ZERO_GRADIENTS:
        raise Undefined(f"{int(zero.sum())} of {len(zero)} examples have all-zero gradients, so there is nothing to linearise")
