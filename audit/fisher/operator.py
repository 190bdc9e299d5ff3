"""F as an operator, v -> J^T S J v: a derivative along v, a matrix of K values, and a gradient; no Jacobian is held."""

from __future__ import annotations

import torch

from audit.errors import ModelError
from audit.models import Classifier

_ADJOINT_TOLERANCE = 0.02


class Operator:
    """J v and J^T u at fixed images, in float64 outside the model."""

    def __init__(self, classifier: Classifier, images: torch.Tensor) -> None:
        self._classifier = classifier
        self._images = images

    def push(self, directions: torch.Tensor) -> torch.Tensor:
        """J v (n, K) for v (n, d)."""
        return self._classifier.jvp(self._images, directions.to(self._images.dtype).view_as(self._images))[1].double()

    def pull(self, weights: torch.Tensor) -> torch.Tensor:
        """J^T u (n, d) for u (n, K); scaled so that the u of a saturated example does not vanish in float32."""
        scale = weights.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        unit = weights / scale
        _, _, gradient = self._classifier.loss_gradient(self._images, lambda z, rows: (z * unit[rows].to(z.dtype)).sum(dim=1))
        return gradient.flatten(1).double() * scale


class Information:
    """S / T^2 with S = diag(p) - p p^T, centred on the top class: otherwise the rows of a saturated example cancel."""

    def __init__(self, logits: torch.Tensor, temperature: float) -> None:
        self._top = logits.argmax(dim=1, keepdim=True)
        self._others = (logits / temperature).softmax(dim=1).scatter(1, self._top, 0.0)
        self._square = temperature**2

    def __call__(self, slopes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """S u / T^2 (n, K) and the form u^T S u / T^2 (n,) for u (n, K)."""
        centred = slopes - slopes.gather(1, self._top)
        mean = (self._others * centred).sum(dim=1, keepdim=True)
        product = self._others * (centred - mean)
        form = (product * centred).sum(dim=1).clamp(min=0) / self._square
        return product.scatter(1, self._top, -product.sum(dim=1, keepdim=True)) / self._square, form


def leading_difference(logits: torch.Tensor) -> torch.Tensor:
    """Weights (n, K): 1 at the highest logit, -1 at the second."""
    leading = logits.topk(2, dim=1).indices
    return torch.zeros_like(logits).scatter(1, leading[:, :1], 1.0).scatter(1, leading[:, 1:], -1.0)


def check_adjoint(form: torch.Tensor, product: torch.Tensor, size: torch.Tensor) -> None:
    """v^T (J^T S J v) must be (J v)^T S (J v) up to rounding, all (n,): a model that hides a path from one has no spectrum."""
    if bool(((form - product).abs() > _ADJOINT_TOLERANCE * size).any()):
        raise ModelError(
            "the forward and reverse derivatives of the model contradict each other (torch.no_grad or a custom gradient inside "
            "forward, or random answers), so that its Fisher information cannot be iterated; read the query-only estimate"
        )
