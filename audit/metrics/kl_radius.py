"""How far an image may move before the output distribution has moved by a given amount, to second order."""

from __future__ import annotations

import numpy as np

from audit.errors import Undefined
from audit.evidence import FisherSpectrum, Floats, Temperature
from audit.metrics.estimates import quantile
from audit.metrics.fisher import SOURCE, fitted
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

KL_RADIUS_TAU = 0.1
SECOND_ORDER = "second order, not a guarantee"


def radii(values: Floats, dimension: int = 1) -> Floats:
    """sqrt(2 tau / (d lambda)) of eigenvalues (n,) > 0: in L2 with d = 1, in Linf with d values in an image."""
    return np.sqrt(2 * KL_RADIUS_TAU / (dimension * values))


@metric(symbol="r KL", family=Family.FISHER, better=Better.HIGHER, unit=Unit.PIXELS, source=SOURCE)
def kl_radius(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Kullback-Leibler radius in L2, median.

    sqrt(2 tau / lambda_max) with tau = 0.1 nats at the fitted temperature: the L2 change at which the output distribution has
    moved by tau, to second order. Not a guarantee.
    Undefined when: no temperature could be fitted, or an eigenvalue is 0.
    """
    return quantile(radii(_moving(fisher_spectrum, temperature)), 0.5, (SECOND_ORDER,))


@metric(symbol="r KL Linf", family=Family.FISHER, better=Better.HIGHER, unit=Unit.PIXELS, source=SOURCE)
def kl_radius_linf(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Kullback-Leibler radius in Linf, median.

    sqrt(2 tau / (d lambda_max)) with tau = 0.1 nats at the fitted temperature and d values in an image: a change of every value by
    at most so much has L2 norm sqrt(d) times that at most, and moves the output distribution by at most tau, to second order. Not
    a guarantee.
    Undefined when: no temperature could be fitted, or an eigenvalue is 0.

    >>> from audit.metrics.kl_radius import kl_radius_linf
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> two_classes = SimpleNamespace(lambda_max=np.array([0.2]), dimension=4)
    >>> fit = SimpleNamespace(value=1.0, at_limit=False)
    >>> round(kl_radius_linf(fisher_spectrum=two_classes, temperature=fit).value, 6)
    0.5
    """
    return quantile(radii(_moving(fisher_spectrum, temperature), fisher_spectrum.dimension), 0.5, (SECOND_ORDER,))


def _moving(evidence: FisherSpectrum, temperature: Temperature) -> Floats:
    fitted(temperature)
    values = evidence.lambda_max
    if len(values) == 0:
        raise Undefined("no example entered the Fisher evidence")
    if (values <= 0).any():
        raise Undefined(f"the outputs do not move at all around {int((values <= 0).sum())} examples")
    return values
