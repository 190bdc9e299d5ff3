"""Sensitivity without an attack: the input Fisher information.

F(x) = J^T S J with J the Jacobian of the logits and S = diag(p) - p p^T; KL(p(x) || p(x + e)) = 1/2 e^T F e + o(|e|^2). The
headline is read at the temperature fitted to the clean data: a saturated softmax drives the raw F to 0 without any robustness.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.stats

from audit.errors import MissingCapability, Undefined
from audit.evidence import FisherEstimate, FisherSpectrum, Floats, Predictions, Temperature
from audit.metrics.estimates import average, largest, quantile, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "Zhang et al. 2026 (arXiv 2606.04767); Zhao et al. 2018 (arXiv 1810.03806)"
NOT_ROBUSTNESS = "a small value is not evidence of robustness"
RAW = "raw outputs (T = 1): multiplying the logits changes it and not one decision; compare models at the fitted temperature"
SATURATED_ABOVE = 0.999


def _statistic(values: Floats, variant: str, notes: tuple[str, ...]) -> Estimate:
    if len(values) == 0:
        raise Undefined("no example entered the Fisher evidence")
    match variant:
        case "mean":
            return average(values, notes)
        case "p95":
            return quantile(values, 0.95, notes)
        case "max":
            return largest(values, notes)
        case _:
            return quantile(values, 0.5, notes)


def _exact(values: Floats, variant: str, notes: tuple[str, ...]) -> Estimate:
    """A statistic of exact eigenvalues; one that is 0 says that the outputs cannot be seen to move, and is no small value."""
    still = int((values == 0).sum())
    estimate = _statistic(
        values, variant, (*((f"{still} examples at 0: their outputs do not move at all",) if still else ()), *notes)
    )
    if estimate.value == 0:
        raise Undefined(f"the outputs do not move at all around {still} of {len(values)} examples: saturated, or without gradients")
    return estimate


def _accuracy(values: Floats, errors: Floats, what: str = "bound on what the iteration is off by") -> tuple[str, ...]:
    """The largest relative error of iterated values, in words; nothing where they are exact."""
    moving = values > 0
    if not (errors[moving] > 0).any():
        return ()
    return (f"iterated (Lanczos); {what}: at most {float((errors[moving] / values[moving]).max()):.2g} of its value",)


def fitted(temperature: Temperature) -> float:
    """The fitted temperature; raises `Undefined` where the fit ran into its bound."""
    if temperature.at_limit:
        raise Undefined(
            f"no temperature could be fitted: the likelihood has no minimum inside the search bounds (T = {temperature.value:.3g})"
        )
    return temperature.value


@metric(
    symbol="λ",
    family=Family.FISHER,
    better=Better.LOWER,
    unit=Unit.PER_PIXEL_SQUARED,
    source=SOURCE,
    variants=("median", "p95", "max"),
)
def fisher_spectral_norm(fisher_spectrum: FisherSpectrum, temperature: Temperature, variant: str) -> Estimate:
    """Largest Fisher eigenvalue at the fitted temperature.

    lambda_max of F(x), exact from the Jacobian of all logits up to 32 classes and iterated beyond (Lanczos), at the temperature
    fitted by negative log-likelihood: how far the predicted distribution can move per squared unit of input change. Over a random
    part of the sample, whose size is n. A small value is not evidence of robustness.
    Undefined when: no temperature could be fitted (every answer right, for example), or the outputs do not move at all around half
    of the examples.

    >>> from audit.metrics.fisher import fisher_spectral_norm
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> two_classes = SimpleNamespace(lambda_max=np.array([0.25]), residual=np.zeros(1))
    >>> fit = SimpleNamespace(value=1.0, at_limit=False)
    >>> round(fisher_spectral_norm(fisher_spectrum=two_classes, temperature=fit, variant="max").value, 3)
    0.25
    """
    notes = (f"T = {fitted(temperature):.3g}", *_accuracy(fisher_spectrum.lambda_max, fisher_spectrum.residual), NOT_ROBUSTNESS)
    return _exact(fisher_spectrum.lambda_max, variant, notes)


@metric(
    symbol="λ raw",
    family=Family.FISHER,
    better=Better.NEITHER,
    unit=Unit.PER_PIXEL_SQUARED,
    source=SOURCE,
    variants=("mean", "median"),
)
def fisher_spectral_norm_raw(fisher_spectrum: FisherSpectrum, variant: str) -> Estimate:
    """Largest Fisher eigenvalue of the raw outputs.

    lambda_max of F(x) at T = 1; the mean is the quantity of the 2026 paper. Rescaling the logits can move it several hundredfold
    without changing one decision, so it compares nothing across models.
    Undefined when: the value is 0, because the outputs do not move at all.

    >>> from audit.metrics.fisher import fisher_spectral_norm_raw
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> two_classes = SimpleNamespace(lambda_max_raw=np.array([0.25]), residual_raw=np.zeros(1))
    >>> round(fisher_spectral_norm_raw(fisher_spectrum=two_classes, variant="mean").value, 3)
    0.25
    """
    notes = (*_accuracy(fisher_spectrum.lambda_max_raw, fisher_spectrum.residual_raw), RAW)
    return _exact(fisher_spectrum.lambda_max_raw, variant, notes)


@metric(symbol="tr F", family=Family.FISHER, better=Better.LOWER, unit=Unit.PER_PIXEL_SQUARED, source=SOURCE)
def fisher_trace(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Trace of the Fisher information at the fitted temperature, median.

    The sum of all eigenvalues: the mean sensitivity over random directions, times the number of values in an image.
    Undefined when: no temperature could be fitted, or the outputs do not move at all around half of the examples.
    """
    trace, error = fisher_spectrum.trace, fisher_spectrum.trace_error
    notes = (f"T = {fitted(temperature):.3g}", *_accuracy(trace, error, "standard error of an example's trace"), NOT_ROBUSTNESS)
    return _exact(trace, "median", notes)


@metric(symbol="r", family=Family.FISHER, better=Better.NEITHER, unit=Unit.RANK, source=SOURCE)
def fisher_effective_rank(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Effective rank of the Fisher information, median.

    trace / lambda_max per example, between 1 and K - 1: along how many directions the outputs are comparably sensitive. Examples
    whose outputs do not move at all have no rank and are left out; a note counts them.
    Undefined when: no temperature could be fitted, or every eigenvalue is 0.
    """
    fitted(temperature)
    values = fisher_spectrum.lambda_max
    moving = values > 0
    if not moving.any():
        raise Undefined("the outputs do not move at all around any example")
    still = len(values) - int(moving.sum())
    return _statistic(
        fisher_spectrum.trace[moving] / values[moving],
        "median",
        (f"{still} examples left out: their outputs do not move at all",) if still else (),
    )


@metric(
    symbol="λ est.",
    family=Family.FISHER,
    better=Better.LOWER,
    unit=Unit.PER_PIXEL_SQUARED,
    source=SOURCE,
    variants=("median", "p95"),
)
def fisher_spectral_norm_estimate(fisher_estimate: FisherEstimate, temperature: Temperature, variant: str) -> Estimate:
    """Largest Fisher eigenvalue at the fitted temperature, from queries only.

    Estimated per example from central differences of 2 sqrt(p) along m orthonormal directions: lambda_max of (d/m) sum D D^T, less
    its leading upward bias; exact when m = d, up to the finite-difference step. No gradients are used. The interval is that of the
    examples, widened by what is left of the bias and by the noise of the directions. A small value is not evidence of robustness.
    Undefined when: no temperature could be fitted, or half of the examples or more are saturated or not smooth.
    """
    fitted(temperature)
    return _eigenvalue(fisher_estimate, fisher_estimate.lambda_max, variant, (f"T = {temperature.value:.3g}", NOT_ROBUSTNESS))


@metric(
    symbol="λ est. raw",
    family=Family.FISHER,
    better=Better.NEITHER,
    unit=Unit.PER_PIXEL_SQUARED,
    source=SOURCE,
    variants=("mean", "median"),
)
def fisher_spectral_norm_estimate_raw(fisher_estimate: FisherEstimate, variant: str) -> Estimate:
    """Largest Fisher eigenvalue of the raw outputs, from queries only.

    As the estimate at the fitted temperature, at T = 1.
    Undefined when: half of the examples or more are saturated or not smooth.
    """
    return _eigenvalue(fisher_estimate, fisher_estimate.lambda_max_raw, variant, (RAW,))


@metric(symbol="tr F est.", family=Family.FISHER, better=Better.LOWER, unit=Unit.PER_PIXEL_SQUARED, source=SOURCE)
def fisher_trace_estimate(fisher_estimate: FisherEstimate, temperature: Temperature) -> Estimate:
    """Trace of the Fisher information at the fitted temperature, from queries only, median.

    (d/m) sum |D_v|^2 over the same directions (Hutchinson 1989), unbiased.
    Undefined when: no temperature could be fitted, or half of the examples or more are saturated or not smooth.
    """
    fitted(temperature)
    return _estimated(fisher_estimate, fisher_estimate.trace, "median", (f"T = {temperature.value:.3g}", NOT_ROBUSTNESS))


def _estimated(evidence: FisherEstimate, values: Floats, variant: str, notes: tuple[str, ...]) -> Estimate:
    # A raw softmax can be saturated where the fitted one is not: such a value is missing, not zero.
    measured = (evidence.status == "measured") & np.isfinite(values)
    if 2 * int(measured.sum()) <= len(measured):
        raise Undefined(
            f"only {int(measured.sum())} of {len(measured)} examples could be measured "
            f"({int((evidence.status == 'saturated').sum())} saturated, {int((evidence.status == 'not_smooth').sum())} not smooth)"
        )
    left_out = len(measured) - int(measured.sum())
    error = float(np.median(evidence.standard_error[measured]))
    details = (
        f"{evidence.directions} of {evidence.dimension} directions ({evidence.kind}), "
        f"{int(evidence.queries.sum())} queries in all, "
        f"step {np.median(evidence.step[measured]):.2g}, relative standard error per example {error:.2g}",
        *((f"{left_out} examples left out: saturated or not smooth",) if left_out else ()),
    )
    return _statistic(values[measured], variant, (*details, *notes))


def _eigenvalue(evidence: FisherEstimate, values: Floats, variant: str, notes: tuple[str, ...]) -> Estimate:
    """A statistic of estimated eigenvalues, its interval widened by what the noise of the directions does to it.

    With relative standard error SE per example, a quantile of lambda (1 + SE e) is at most z SE too large, z the normal quantile,
    if all examples are alike, and less if they differ. The bias left after Lawley's correction is below another SE; the other way,
    the median of a chi-squared sum lies below its mean by less than SE^2 / 2. The step error widens both ends.
    """
    estimate = _estimated(evidence, values, variant, notes)
    if estimate.interval is None:
        return estimate
    measured = (evidence.status == "measured") & np.isfinite(values)
    error, step = float(np.median(evidence.standard_error[measured])), float(np.median(evidence.step_error[measured]))
    raised = scipy.stats.norm.ppf(0.95) if variant == "p95" else 0.0
    interval = replace(
        estimate.interval,
        low=estimate.interval.low * float(np.exp(-(1 + raised) * error)) / (1 + step),
        high=estimate.interval.high * float(np.exp(error**2 / 2)) * (1 + step),
        method=f"{estimate.interval.method}, widened by the noise of the directions",
    )
    return replace(estimate, interval=interval)


@metric(symbol="T", family=Family.FISHER, better=Better.NEITHER, unit=Unit.TEMPERATURE, source="Guo et al. 2017 (arXiv 1706.04599)")
def fitted_temperature(temperature: Temperature, predictions: Predictions) -> Estimate:
    """Fitted temperature.

    The T that minimises the negative log-likelihood of softmax(logits / T) on the clean sample. Above 1 the model is overconfident.
    Undefined when: the search ran into its bound.
    """
    if temperature.at_limit:
        raise Undefined(f"the likelihood has no minimum inside the search bounds (T = {temperature.value:.3g})")
    return Estimate(
        value=temperature.value,
        samples=len(predictions.labels),
        interval=None,
        why_no_interval="a fit: it describes this sample",
        notes=(f"negative log-likelihood {temperature.loss_before:.4f} before, {temperature.loss_after:.4f} after",),
    )


@metric(
    symbol="sat",
    family=Family.FISHER,
    better=Better.NEITHER,
    unit=Unit.SHARE,
    source="saturation of the softmax",
    reads_scores=True,
)
def saturated_share(predictions: Predictions) -> Estimate:
    """Saturated answers.

    The share of examples whose largest raw probability exceeds 0.999. Above 10 % raw sensitivities and confidences mislead.
    Not applicable when: the model answers with labels only.

    >>> from audit.metrics.fisher import saturated_share
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> saturated_share(predictions=SimpleNamespace(logits=np.array([[9.0, 0.0], [1.0, 0.0]]), no_scores=None)).value
    0.5
    """
    if predictions.no_scores is not None:
        raise MissingCapability(predictions.no_scores)
    shifted = predictions.logits - predictions.logits.max(axis=1, keepdims=True)
    return share(1 / np.exp(shifted).sum(axis=1) > SATURATED_ABOVE)
