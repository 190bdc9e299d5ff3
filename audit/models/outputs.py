"""Logits or probabilities: settled once, by looking.

A softmax that is applied twice hides gradients and flattens confidences, so probabilities are turned into log p, whose
softmax is p again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from audit.errors import ModelError
from audit.models import Classifier, RowLoss
from audit.result import ModelIdentity
from audit.vocabulary import Capability

# Far below what a float32 softmax resolves beside 1, far above where 1 / p would overflow.
PROBABILITY_FLOOR = 1e-30
# Sums of float16 probabilities miss 1 by up to about 1e-3; logits of more than one image never come that close.
SUM_TOLERANCE = 1e-3
NEGATIVE_TOLERANCE = 1e-6


def resolve_outputs(classifier: Classifier, images: torch.Tensor) -> Classifier:
    """Settle once whether the outputs are logits or probabilities, and give back a classifier that returns logits or log p.

    A user's statement (`outputs=logits|probabilities`) wins over the look of the outputs, and is checked.

    Args:
        classifier: as loaded; its `identity.input_spec["outputs"]` is auto, logits or probabilities.
        images: (n, c, h, w) in [0, 1], a few dozen real ones.

    Raises:
        ModelError: probabilities were stated, but the outputs are none.
    """
    stated = classifier.identity.input_spec.get("outputs", "auto")
    scores = classifier.logits(images)
    detected = are_probabilities(scores)
    identity = classifier.identity
    if stated == "probabilities" and not detected:
        raise ModelError(
            f"{identity.label}: outputs=probabilities was stated, but the outputs on {scores.shape[0]} images are not "
            f"(smallest {float(scores.min()):.3g}, row sums {float(scores.sum(1).min()):.3g} to {float(scores.sum(1).max()):.3g}); "
            "state outputs=logits or leave it out"
        )
    cautions = identity.cautions
    if stated == "logits" and detected:
        cautions = (
            *cautions,
            "outputs=logits was stated, but every output row sums to 1, as probabilities do: softmax is applied twice.",
        )
    probabilities = stated == "probabilities" or (stated == "auto" and detected)
    word = "probabilities" if probabilities else "logits"
    outputs = f"{word} ({'detected' if stated == 'auto' else 'stated'})"
    return ResolvedClassifier(classifier, replace(identity, outputs=outputs, cautions=cautions), probabilities=probabilities)


def are_probabilities(scores: torch.Tensor) -> bool:
    """Whether every row (K,) of scores is non-negative and sums to 1."""
    return bool((scores >= -NEGATIVE_TOLERANCE).all()) and bool(((scores.sum(dim=1) - 1).abs() <= SUM_TOLERANCE).all())


class ResolvedClassifier:
    """A classifier whose outputs are known: logits as they are, probabilities as log max(p, floor)."""

    def __init__(self, inner: Classifier, identity: ModelIdentity, *, probabilities: bool) -> None:
        self._inner = inner
        self._identity = identity
        self._probabilities = probabilities

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded, with the outputs settled."""
        return self._identity

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """What it cannot do and why."""
        return self._inner.lacks

    @property
    def classes(self) -> int:
        """K, the number of classes."""
        return self._inner.classes

    @property
    def device(self) -> torch.device:
        """Where images must live."""
        return self._inner.device

    @property
    def forward_passes(self) -> int:
        """Images pushed through the model so far."""
        return self._inner.forward_passes

    @property
    def backward_passes(self) -> int:
        """Images whose gradients were taken so far."""
        return self._inner.backward_passes

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits or log-probabilities (n, K)."""
        return self._log(self._inner.logits(images))

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits or log-probabilities (n, K), loss (n,) and its gradient (n, c, h, w)."""
        scores, values, gradient = self._inner.loss_gradient(images, lambda outputs, rows: loss(self._log(outputs), rows))
        return self._log(scores), values, gradient

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits or log-probabilities (n, K) and their Jacobian (n, K, c*h*w); rows at the floor are 0."""
        scores, jacobian = self._inner.jacobian(images)
        if self._probabilities:
            above = scores > PROBABILITY_FLOOR
            slope = torch.where(above, 1 / scores.clamp(min=PROBABILITY_FLOOR), torch.zeros_like(scores))
            jacobian = jacobian * slope[:, :, None]
        return self._log(scores), jacobian

    def _log(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.clamp(min=PROBABILITY_FLOOR).log() if self._probabilities else scores
