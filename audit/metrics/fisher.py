"""Sensitivity without an attack: the input Fisher information and the linearised margin.

F(x) = J^T S J with J the Jacobian of the logits and S = diag(p) - p p^T; KL(p(x) || p(x + e)) = 1/2 e^T F e + o(|e|^2). The
headline is read at the temperature fitted to the clean data: a saturated softmax drives the raw F to 0 without any robustness.
"""

from __future__ import annotations

import numpy as np

from audit.errors import Undefined
from audit.evidence import FisherEstimate, FisherSpectrum, Floats, Predictions, Temperature
from audit.fisher.spectrum import spectrum
from audit.metrics.estimates import average, largest, quantile, share
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Norm, Threat, Unit

SOURCE = "Zhang et al. 2026 (arXiv 2606.04767); Zhao et al. 2018 (arXiv 1810.03806)"
NOT_ROBUSTNESS = "a small value is not evidence of robustness"
RAW = "raw outputs (T = 1): multiplying the logits changes it and not one decision; compare models at the fitted temperature"
SATURATED_ABOVE = 0.999
KL_RADIUS_TAU = 0.1


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

    lambda_max of F(x), exact from the Jacobian of all logits, at the temperature fitted by negative log-likelihood: how far the
    predicted distribution can move per squared unit of input change. A small value is not evidence of robustness.

    >>> from audit.metrics.fisher import fisher_spectral_norm
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> two_classes = SimpleNamespace(gram=np.array([[[1.0, 0.0], [0.0, 0.0]]]), logits=np.zeros((1, 2)))
    >>> round(fisher_spectral_norm(fisher_spectrum=two_classes, temperature=SimpleNamespace(value=1.0), variant="max").value, 3)
    0.25
    """
    values, _, _ = spectrum(fisher_spectrum.gram, fisher_spectrum.logits, temperature.value)
    return _statistic(values, variant, (f"T = {temperature.value:.3g}", NOT_ROBUSTNESS))


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

    lambda_max of F(x) at T = 1; the mean is the quantity of the 2026 paper. Rescaling the logits moves it several hundredfold
    without changing one decision, so it compares nothing across models.

    >>> from audit.metrics.fisher import fisher_spectral_norm_raw
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> two_classes = SimpleNamespace(gram=np.array([[[1.0, 0.0], [0.0, 0.0]]]), logits=np.zeros((1, 2)))
    >>> round(fisher_spectral_norm_raw(fisher_spectrum=two_classes, variant="mean").value, 3)
    0.25
    """
    values, _, _ = spectrum(fisher_spectrum.gram, fisher_spectrum.logits, 1.0)
    return _statistic(values, variant, (RAW,))


@metric(symbol="tr F", family=Family.FISHER, better=Better.LOWER, unit=Unit.PER_PIXEL_SQUARED, source=SOURCE)
def fisher_trace(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Trace of the Fisher information at the fitted temperature, median.

    The sum of all eigenvalues: sensitivity to a change of random direction, times the number of pixels.
    """
    _, trace, _ = spectrum(fisher_spectrum.gram, fisher_spectrum.logits, temperature.value)
    return _statistic(trace, "median", (f"T = {temperature.value:.3g}", NOT_ROBUSTNESS))


@metric(symbol="r", family=Family.FISHER, better=Better.NEITHER, unit=Unit.RANK, source=SOURCE)
def fisher_effective_rank(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Effective rank of the Fisher information, median.

    trace / lambda_max per example, between 1 and K - 1: along how many directions the outputs are comparably sensitive.
    Undefined when: every eigenvalue is 0.
    """
    largest_eigenvalue, _, rank = spectrum(fisher_spectrum.gram, fisher_spectrum.logits, temperature.value)
    if not (largest_eigenvalue > 0).any():
        raise Undefined("the outputs do not move at all around any example")
    return _statistic(rank[largest_eigenvalue > 0], "median", ())


@metric(
    symbol="λ est.",
    family=Family.FISHER,
    better=Better.LOWER,
    unit=Unit.PER_PIXEL_SQUARED,
    source=SOURCE,
    variants=("median", "p95"),
)
def fisher_spectral_norm_estimate(fisher_estimate: FisherEstimate, variant: str) -> Estimate:
    """Largest Fisher eigenvalue at the fitted temperature, from queries only.

    Estimated per example from central differences of 2 sqrt(p) along m orthonormal directions: lambda_max of (d/m) sum D D^T,
    corrected for its upward bias; exact when m = d. No gradients are used. The interval covers the sampling of examples and of
    directions. A small value is not evidence of robustness.
    Undefined when: more than half of the examples are saturated or not smooth.
    """
    return _estimated(fisher_estimate, fisher_estimate.lambda_max, variant, (NOT_ROBUSTNESS,))


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
    """
    return _estimated(fisher_estimate, fisher_estimate.lambda_max_raw, variant, (RAW,))


@metric(symbol="tr F est.", family=Family.FISHER, better=Better.LOWER, unit=Unit.PER_PIXEL_SQUARED, source=SOURCE)
def fisher_trace_estimate(fisher_estimate: FisherEstimate) -> Estimate:
    """Trace of the Fisher information at the fitted temperature, from queries only, median.

    (d/m) sum |D_v|^2 over the same directions (Hutchinson 1989).
    """
    return _estimated(fisher_estimate, fisher_estimate.trace, "median", (NOT_ROBUSTNESS,))


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
        f"{evidence.directions} of {evidence.dimension} directions, {int(evidence.queries.sum())} queries in all, "
        f"step {np.median(evidence.step[measured]):.2g}, relative standard error per example {error:.2g}",
        *((f"{left_out} examples left out: saturated or not smooth",) if left_out else ()),
    )
    return _statistic(values[measured], variant, (*details, *notes))


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


@metric(symbol="sat", family=Family.FISHER, better=Better.NEITHER, unit=Unit.SHARE, source="FISHER: saturation of the softmax")
def saturated_share(predictions: Predictions) -> Estimate:
    """Saturated answers.

    The share of examples whose largest raw probability exceeds 0.999. Above 10 % raw sensitivities and confidences mislead.

    >>> from audit.metrics.fisher import saturated_share
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> saturated_share(predictions=SimpleNamespace(logits=np.array([[9.0, 0.0], [1.0, 0.0]]))).value
    0.5
    """
    shifted = predictions.logits - predictions.logits.max(axis=1, keepdims=True)
    return share(1 / np.exp(shifted).sum(axis=1) > SATURATED_ABOVE)


@metric(
    symbol="ρ",
    family=Family.FISHER,
    better=Better.HIGHER,
    unit=Unit.PIXELS,
    source="Hein & Andriushchenko 2017 (arXiv 1705.08475), first order",
    variants=("linf", "l2", "l1"),
)
def linearised_margin_radius(fisher_spectrum: FisherSpectrum, variant: str) -> Estimate:
    """Linearised margin radius, median.

    Per example the minimum over the other classes of (logit gap) / (dual norm of the gradient difference); 0 where misclassified.
    First order: not a guarantee.
    """
    values = {"linf": fisher_spectrum.margin_linf, "l2": fisher_spectrum.margin_l2, "l1": fisher_spectrum.margin_l1}[variant]
    return _statistic(values, "median", ("first order, not a guarantee",))


@metric(
    symbol="LM",
    family=Family.FISHER,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source="Hein & Andriushchenko 2017 (arXiv 1705.08475), first order",
)
def linearised_margin_share(fisher_spectrum: FisherSpectrum, threat: Threat) -> Estimate:
    """Images with a linearised margin above epsilon.

    The share of all examples that are correct with a linearised margin radius larger than the threat's epsilon. First order: not
    a guarantee, and void where gradients vanish or the softmax saturates.

    >>> from audit.metrics.fisher import linearised_margin_share
    >>> from audit.vocabulary import Threat
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> margins = SimpleNamespace(margin_l2=np.array([0.0, 0.4, 0.6, 0.7]))
    >>> linearised_margin_share(fisher_spectrum=margins, threat=Threat.parse("l2:0.5")).value
    0.5
    """
    columns = {Norm.LINF: "margin_linf", Norm.L2: "margin_l2", Norm.L1: "margin_l1"}
    values: Floats = getattr(fisher_spectrum, columns[threat.norm])
    if len(values) == 0:
        raise Undefined("no example entered the Fisher evidence")
    return share(values > threat.epsilon, ("first order, not a guarantee",))


@metric(symbol="r KL", family=Family.FISHER, better=Better.HIGHER, unit=Unit.PIXELS, source=SOURCE)
def kl_radius(fisher_spectrum: FisherSpectrum, temperature: Temperature) -> Estimate:
    """Kullback-Leibler radius in L2, median.

    sqrt(2 tau / lambda_max) with tau = 0.1 nats at the fitted temperature: the L2 change at which the output distribution has
    moved by tau, to second order. Not a guarantee.
    Undefined when: an eigenvalue is 0.
    """
    values, _, _ = spectrum(fisher_spectrum.gram, fisher_spectrum.logits, temperature.value)
    if (values <= 0).any():
        raise Undefined(f"the outputs do not move at all around {int((values <= 0).sum())} examples")
    return _statistic(np.sqrt(2 * KL_RADIUS_TAU / values), "median", ("second order, not a guarantee",))
