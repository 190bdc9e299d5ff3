"""What the architecture allows at most: a certificate, to be read with its looseness, and never a ranking.

Both values are powers of ten: for deep networks the numbers themselves overflow.
"""

from __future__ import annotations

import math

import numpy as np

from audit.errors import MissingCapability, Undefined
from audit.evidence import FisherSpectrum, LipschitzBound, Temperature
from audit.metrics.fisher import fitted
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "FISHER: the product of the modules' Lipschitz constants, our own derivation"
# Beyond this, a bound says nothing about the value.
VACUOUS_BEYOND = 3.0
NO_INTERVAL = "a bound, no estimate"


@metric(symbol="log λ bound", family=Family.FISHER, better=Better.NEITHER, unit=Unit.POWERS_OF_TEN, source=SOURCE)
def fisher_architecture_bound(architecture_bound: LipschitzBound, temperature: Temperature) -> Estimate:
    """Architecture bound on the largest Fisher eigenvalue, as a power of ten.

    log10 of Lip^2 / (2 T^2) at the fitted temperature, with Lip the product of the modules' Lipschitz constants in L2, the scale
    of the input specification included: lambda_max of diag(p) - p p^T is at most 1/2, so no image in [0, 1] has a larger
    eigenvalue. Derived from the weights alone, without an image.
    Not applicable when: a module is not known, or the model shows no modules. Undefined when: no temperature could be fitted.

    >>> from audit.metrics.fisher_bound import fisher_architecture_bound
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> weights = SimpleNamespace(log_lipschitz=np.array([np.log(2.0)]), unknown=np.array([""]))
    >>> fit = SimpleNamespace(value=1.0, at_limit=False)
    >>> round(fisher_architecture_bound(architecture_bound=weights, temperature=fit).value, 3)
    0.301
    """
    return Estimate(
        value=_log10(architecture_bound, temperature),
        samples=0,
        interval=None,
        why_no_interval=NO_INTERVAL,
        notes=(f"T = {temperature.value:.3g}", "of the weights, not of a sample; it compares nothing across models"),
    )


@metric(symbol="log λ bound/λ", family=Family.FISHER, better=Better.NEITHER, unit=Unit.POWERS_OF_TEN, source=SOURCE)
def fisher_bound_looseness(
    architecture_bound: LipschitzBound, fisher_spectrum: FisherSpectrum, temperature: Temperature
) -> Estimate:
    """Looseness of the architecture bound, as a power of ten.

    log10 of the architecture bound / the largest eigenvalue that was measured: 0 where the bound is reached. Above 3 the bound is
    vacuous.
    Not applicable when: the bound is not. Undefined when: no temperature could be fitted, or the outputs do not move at all.

    >>> from audit.metrics.fisher_bound import fisher_bound_looseness
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> weights = SimpleNamespace(log_lipschitz=np.array([np.log(2.0)]), unknown=np.array([""]))
    >>> measured = SimpleNamespace(lambda_max=np.array([0.2, 0.02]))
    >>> fit = SimpleNamespace(value=1.0, at_limit=False)
    >>> round(fisher_bound_looseness(architecture_bound=weights, fisher_spectrum=measured, temperature=fit).value, 3)
    1.0
    """
    bound = _log10(architecture_bound, temperature)
    largest = float(fisher_spectrum.lambda_max.max(initial=0.0))
    if largest <= 0:
        raise Undefined("the outputs do not move at all around any example: there is nothing to compare the bound with")
    loose = bound - math.log10(largest)
    return Estimate(
        value=loose,
        samples=len(fisher_spectrum.lambda_max),
        interval=None,
        why_no_interval=NO_INTERVAL,
        notes=("vacuous: more than 1000 times the largest value",) if loose > VACUOUS_BEYOND else (),
    )


def _log10(bound: LipschitzBound, temperature: Temperature) -> float:
    """Log10 of Lip^2 / (2 T^2)."""
    if len(bound.unknown) == 0:
        raise Undefined("no example was audited")
    if bound.unknown[0]:
        raise MissingCapability(str(bound.unknown[0]))
    if not np.isfinite(bound.log_lipschitz[0]):
        raise Undefined("the weights say that the outputs never move")
    return float((2 * (bound.log_lipschitz[0] - math.log(fitted(temperature))) - math.log(2)) / math.log(10))
