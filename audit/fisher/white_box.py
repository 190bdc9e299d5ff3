"""The spectrum of the Fisher information of a torch module: `audit.fisher_spectrum`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch

from audit.errors import InputError, MissingCapability
from audit.evidence import Floats, Strings
from audit.fisher import exact, lanczos
from audit.fisher.bounds import VACUOUS_BEYOND, architecture_bound
from audit.fisher.exact import MOST_CLASSES_EXACT
from audit.fisher.given import Array, check_repeatable, images_of, temperature_of
from audit.fisher.iteration import hutchinson_trace, power_iteration
from audit.fisher.queries import MEASURED, SATURATED
from audit.fisher.spectrum import log_softmax, spectrum
from audit.models import Classifier, resolve_outputs
from audit.models.outputs import ResolvedClassifier
from audit.models.torch_module import wrap

FLAT = "flat"
_SATURATED_ABOVE = 0.999


class Method(StrEnum):
    """How the spectrum is found. `HUTCHINSON` finds the trace alone; `AUTO` is exact up to 32 classes and `LANCZOS` beyond."""

    AUTO = "auto"
    EXACT = "exact"
    LANCZOS = "lanczos"
    POWER = "power"
    HUTCHINSON = "hutchinson"


@dataclass(frozen=True, kw_only=True)
class SpectrumOfImages:
    """Per image (n,), in 1 / pixel range²; NaN where the method does not find it, or the outputs do not move (see `status`).

    `residual` bounds how far some eigenvalue is from `lambda_max`, `trace_error` is the trace's standard error; both 0 where exact.
    `log10_bound` (n,) is the logarithm of what the architecture allows at most, NaN where it is not known, and `bound` says in
    words how loose that is, or which module is not known. `direction` (n, c, h, w) is the unit top direction, zeros where there is
    none. `status` is "measured", "saturated" (one class has more than 0.999 of the probability, and nothing can be seen to move) or
    "flat".
    """

    method: Method
    temperature: float
    lambda_max: Floats
    trace: Floats
    residual: Floats
    trace_error: Floats
    direction: Floats
    status: Strings
    log10_bound: Floats
    bound: str
    notes: tuple[str, ...]

    @property
    def interval(self) -> tuple[Floats, Floats]:
        """Where lambda_max lies: a Ritz value is never above it, and an eigenvalue lies within the residual."""
        return self.lambda_max, self.lambda_max + self.residual

    @property
    def effective_rank(self) -> Floats:
        """Trace / lambda_max, (n,)."""
        return self.trace / self.lambda_max

    def kl_radius(self, tau: float = 0.1) -> Floats:
        """sqrt(2 tau / lambda_max), (n,): the L2 change that moves the outputs by tau nats; second order, not a guarantee."""
        return np.sqrt(2 * tau / self.lambda_max)


def fisher_spectrum(
    model: torch.nn.Module,
    inputs: Array,
    *,
    labels: Array | None = None,
    temperature: float | None = None,
    method: str = "auto",
    seed: int = 0,
) -> SpectrumOfImages:
    """The spectrum of F(x) = J^T S J at each image, from the derivatives of a torch module in eval mode.

    Args:
        model: images (n, c, h, w) -> logits (n, K), or probabilities, which are recognised; it stays as it is.
        inputs: images (n, c, h, w) in [0, 1], NumPy or torch.
        labels: (n,) class numbers, to fit the temperature by likelihood.
        temperature: T of softmax(z / T); by default fitted to the labels, or to a mean entropy of 0.1 ln K without any.
        method: auto, exact, lanczos, power (iteration) or hutchinson (the trace alone).
        seed: of the probes for the trace.

    Raises:
        InputError: images, labels or temperature cannot be used, the module is in training mode, or the method is unknown.
        ModelError: the outputs are not finite (n, K) scores with K >= 2, or random, or have no derivatives.

    >>> import audit, torch
    >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2, bias=False)).eval()
    >>> _ = model[1].weight.data.copy_(torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    >>> found = audit.fisher_spectrum(model, torch.zeros(1, 1, 2, 2), temperature=1)  # p (1 - p) |w|² = 1/4 · 4
    >>> round(float(found.lambda_max[0]), 6), round(float(found.trace[0]), 6), found.status[0].item()
    (1.0, 1.0, 'measured')
    """
    images = images_of(inputs).float()
    if method not in set(Method):
        raise InputError(f"method {method!r} is not known; write {', '.join(Method)}")
    if any(module.training for module in model.modules()):
        raise InputError("the model is in training mode, where dropout and batch statistics change its answers; call model.eval()")
    with _unchanged(model) as device:
        raw = wrap(model, image_shape=(images.shape[1], images.shape[2], images.shape[3]), device=device)
        images = images.to(raw.device)
        classifier = resolve_outputs(raw, images[:32])
        logits = classifier.logits(images).double().cpu().numpy()
        check_repeatable(logits, classifier.logits(images).double().cpu().numpy())
        t = temperature_of(logits, labels, temperature)
        chosen = Method(method)
        if chosen is Method.AUTO:
            chosen = Method.EXACT if classifier.classes <= MOST_CLASSES_EXACT else Method.LANCZOS
        step = _rows_at_once(chosen, classifier.classes, images[0].numel())
        starts = range(0, len(images), step)
        parts = [
            _of_rows(chosen, classifier, images[start : start + step], logits[start : start + step], t, (seed, start))
            for start in starts
        ]
    values, directions = np.concatenate([part[0] for part in parts], axis=1), torch.cat([part[1] for part in parts])
    still = (np.nan_to_num(values[0]) == 0) & (np.nan_to_num(values[1]) == 0)
    confident = np.exp(log_softmax(logits, t).max(axis=1)) > _SATURATED_ABOVE
    values[:, still] = np.nan
    bounds, words = _bound(model, classifier, images, logits, t, values[0])
    return SpectrumOfImages(
        method=chosen,
        temperature=t,
        lambda_max=values[0],
        trace=values[1],
        residual=values[2],
        trace_error=values[3],
        direction=directions.reshape(images.shape).numpy(),
        status=np.where(still, np.where(confident, SATURATED, FLAT), MEASURED).astype(np.str_),
        log10_bound=bounds,
        bound=words,
        notes=classifier.identity.cautions,
    )


def _bound(
    model: torch.nn.Module, classifier: Classifier, images: torch.Tensor, logits: Floats, t: float, values: Floats
) -> tuple[Floats, str]:
    """Log10 of the architecture's bound (n,), and what to think of it."""
    if isinstance(classifier, ResolvedClassifier) and classifier.probabilities:
        return np.full(len(logits), np.nan), "no architecture bound: the model gives probabilities, not logits"
    try:
        found = architecture_bound(model, (images.shape[1], images.shape[2], images.shape[3]))
    except MissingCapability as error:
        return np.full(len(logits), np.nan), str(error)
    bounds = found.log_lambda_max(logits, t) / math.log(10)
    measured = values > 0
    if not measured.any():
        return bounds, "nothing measured to compare the bound with"
    loose = float(np.median(bounds[measured] - np.log10(values[measured])))
    vacuous = ": vacuous" if loose > math.log10(VACUOUS_BEYOND) else ""
    return bounds, f"loose by a factor of 1e{loose:.1f} (median){vacuous}"


@contextmanager
def _unchanged(model: torch.nn.Module) -> Iterator[str]:
    """Give back the device of the model, and leave its parameters asking for gradients as they did."""
    asked = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    try:
        yield "cuda" if any(parameter.is_cuda for parameter, _ in asked) else "cpu"
    finally:
        for parameter, before in asked:
            parameter.requires_grad_(before)


def _rows_at_once(method: Method, classes: int, dimension: int) -> int:
    return exact.rows_at_once(classes, dimension) if method is Method.EXACT else lanczos.rows_at_once(dimension)


def _of_rows(
    method: Method, classifier: Classifier, images: torch.Tensor, logits: Floats, t: float, source: tuple[int, int]
) -> tuple[Floats, torch.Tensor]:
    """Lambda_max, trace, residual and trace error (4, n), NaN where not found, and top directions (n, d)."""
    none, missing = np.zeros(len(images)), np.full(len(images), np.nan)
    if method is Method.EXACT:
        _, jacobian = classifier.jacobian(images)
        gram = exact.gram(jacobian)
        largest, trace, _ = spectrum(gram, logits, t)
        return np.stack([largest, trace, none, none]), exact.top_directions(jacobian, gram, logits, t)
    if method is Method.POWER:
        iterate = power_iteration(classifier, images, logits, t)
        return np.stack([iterate.lambda_max, missing, iterate.residual, missing]), iterate.direction
    probes = torch.stack([_signs((lanczos.TRACE_PROBES, *images.shape[1:]), source[0], source[1] + i) for i in range(len(images))])
    if method is Method.HUTCHINSON:
        mean, error = hutchinson_trace(classifier, images, logits, t, probes.to(images))
        return np.stack([missing, mean, missing, error]), torch.zeros(len(images), images[0].numel())
    (found,) = lanczos.lanczos(classifier, images, logits, (t,), probes.to(images))
    return np.stack([found.lambda_max, found.trace, found.residual, found.trace_error]), found.direction


def _signs(shape: tuple[int, ...], seed: int, place: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, place]).generate_state(1)[0]))
    return torch.randint(0, 2, shape, generator=generator).float() * 2 - 1
