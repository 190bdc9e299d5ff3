"""The query-only estimate beside the exact value of the same examples: what the estimate is worth where nothing else can be had."""

from __future__ import annotations

import numpy as np

from audit.errors import Undefined
from audit.evidence import Bools, FisherEstimate, FisherSpectrum, Floats, Temperature
from audit.metrics.estimates import quantile, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

# 97.5 % point of the standard normal distribution.
_Z = 1.959963984540054


@metric(
    symbol="λ est./λ",
    family=Family.FISHER,
    better=Better.NEITHER,
    unit=Unit.RATIO,
    source="FISHER: the estimate against the exact value",
    variants=("ratio", "covered"),
    variant_units={"covered": Unit.SHARE},
)
def fisher_estimate_agreement(
    fisher_spectrum: FisherSpectrum, fisher_estimate: FisherEstimate, temperature: Temperature, variant: str
) -> Estimate:
    """Query-only eigenvalue against the exact one.

    Over the examples where both were measured, at the fitted temperature: the median of estimate / exact value, and the share of
    examples whose exact value lies in the estimate's own 95 % interval, exp(-+1.96 SE) widened by the finite-difference step. With
    a ratio near 1 and a share near 0.95 the estimate can be believed for a model that can only be asked.
    Undefined when: no temperature could be fitted, or no example was measured both ways.

    >>> from audit.metrics.fisher_agreement import fisher_estimate_agreement
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> exact = SimpleNamespace(positions=np.arange(2), lambda_max=np.array([1.0, 2.0]), residual=np.zeros(2))
    >>> estimate = SimpleNamespace(
    ...     positions=np.arange(2), lambda_max=np.array([1.1, 3.0]), status=np.array(["measured"] * 2),
    ...     standard_error=np.full(2, 0.1), step_error=np.zeros(2))
    >>> fit = SimpleNamespace(value=1.0, at_limit=False)
    >>> fisher_estimate_agreement(fisher_spectrum=exact, fisher_estimate=estimate, temperature=fit, variant="covered").value
    0.5
    """
    if temperature.at_limit:
        raise Undefined("no temperature could be fitted: the likelihood has no minimum inside the search bounds")
    ratios, covered = _side_by_side(fisher_spectrum, fisher_estimate)
    if len(ratios) == 0:
        raise Undefined("no example was measured both from gradients and from queries alone")
    return share(covered) if variant == "covered" else quantile(ratios, 0.5, (f"T = {temperature.value:.3g}",))


def _side_by_side(exact: FisherSpectrum, estimate: FisherEstimate) -> tuple[Floats, Bools]:
    """Estimate / exact value, and whether the interval holds the latter, of the examples where both were measured."""
    _, here, there = np.intersect1d(exact.positions, estimate.positions, return_indices=True)
    truth, found = exact.lambda_max[here], estimate.lambda_max[there]
    both = (truth > 0) & (estimate.status[there] == "measured") & (found > 0)
    ratios = found[both] / truth[both]
    # An iterated value may itself be too small by its residual.
    short = np.log1p(exact.residual[here][both] / truth[both])
    half = _Z * estimate.standard_error[there][both] + np.log1p(estimate.step_error[there][both])
    offset = np.log(ratios)
    return ratios, np.asarray((offset <= half + short) & (offset >= -half))
