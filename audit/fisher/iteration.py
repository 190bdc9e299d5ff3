"""Two textbook methods to compare Lanczos with: power iteration for the eigenvalue, Hutchinson's estimate for the trace alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from audit.evidence import Floats, Ints
from audit.fisher.lanczos import RELATIVE_RESIDUAL
from audit.fisher.operator import Information, Operator, check_adjoint, leading_difference
from audit.models import Classifier

MOST_POWER_ITERATIONS = 50


@dataclass(frozen=True, kw_only=True)
class PowerIterate:
    """Of each example (n,): the Rayleigh quotient reached, and some eigenvalue lies within `residual` of it; `direction` (n, d)."""

    lambda_max: Floats
    residual: Floats
    iterations: Ints
    direction: torch.Tensor


def power_iteration(
    classifier: Classifier, images: torch.Tensor, logits: Floats, temperature: float, most: int = MOST_POWER_ITERATIONS
) -> PowerIterate:
    """Apply F to the same start as Lanczos until the residual is small, at most `most` times.

    Args:
        classifier: has gradients, and answers the same twice.
        images: (n, c, h, w) on its device.
        logits: (n, K) at the images.
        temperature: T > 0 of softmax(z / T).
        most: iterations.

    Raises:
        ModelError: derivatives are not finite, or the forward and reverse ones contradict each other.
    """
    operator = Operator(classifier, images)
    z = torch.from_numpy(np.asarray(logits, dtype=np.float64)).to(images.device)
    information = Information(z, temperature)
    v = _unit(operator.pull(leading_difference(z)))
    value = torch.zeros(len(images), dtype=torch.float64, device=images.device)
    residual, direction, size = value.clone(), v.clone(), value.clone()
    iterations = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    going = torch.ones(len(images), dtype=torch.bool, device=images.device)
    for _ in range(most):
        product, form = information(operator.push(v))
        w = operator.pull(product)
        size = torch.maximum(size, form)
        check_adjoint(form, (w * v).sum(dim=1), size)
        value, direction = torch.where(going, form, value), torch.where(going[:, None], v, direction)
        residual = torch.where(going, (w - form[:, None] * v).norm(dim=1), residual)
        iterations += going
        going = going & (residual > RELATIVE_RESIDUAL * value)
        if not bool(going.any()):
            break
        v = _unit(w)
    return PowerIterate(
        lambda_max=value.cpu().numpy(),
        residual=residual.cpu().numpy(),
        iterations=iterations.cpu().numpy(),
        direction=direction.float().cpu(),
    )


def hutchinson_trace(
    classifier: Classifier, images: torch.Tensor, logits: Floats, temperature: float, probes: torch.Tensor
) -> tuple[Floats, Floats]:
    """Unbiased estimates (n,) of trace(F), the mean of w^T F w (Hutchinson 1989), and their standard errors (n,).

    Args:
        classifier: has gradients.
        images: (n, c, h, w) on its device.
        logits: (n, K) at the images.
        temperature: T > 0 of softmax(z / T).
        probes: w, (n, P, c, h, w) independent values of mean 0 and variance 1, P >= 2.
    """
    operator = Operator(classifier, images)
    information = Information(torch.from_numpy(np.asarray(logits, dtype=np.float64)).to(images.device), temperature)
    forms = torch.stack([information(operator.push(probes[:, j].flatten(1)))[1] for j in range(probes.shape[1])])
    return forms.mean(dim=0).cpu().numpy(), (forms.std(dim=0) / probes.shape[1] ** 0.5).cpu().numpy()


def _unit(v: torch.Tensor) -> torch.Tensor:
    size = v.norm(dim=1, keepdim=True)
    return torch.where(size > 0, v / size.clamp(min=torch.finfo(v.dtype).tiny), 0.0)
