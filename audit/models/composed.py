"""A classifier put together from several: scores from one, gradients and layers from another or none, a surrogate beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from audit.errors import MissingCapability
from audit.models import Classifier, RowLoss
from audit.models.around import Around
from audit.result import ModelIdentity
from audit.vocabulary import Capability


class ComposedClassifier(Around):
    """Scores from `scores`; layers, and gradients with the scores that go with them, from `inside`, unless `lacks` says why not."""

    def __init__(
        self,
        scores: Classifier,
        *,
        identity: ModelIdentity,
        lacks: Mapping[Capability, str],
        inside: Classifier | None = None,
        surrogate: Classifier | None = None,
    ) -> None:
        super().__init__(scores, identity)
        self.surrogate = surrogate
        self._inside = scores if inside is None else inside
        self._lacks = lacks

    @property
    def alone(self) -> Classifier | None:
        """The one classifier that scores and gradients come from; None where there are two."""
        return self._inner if self._inside is self._inner else None

    @property
    def lacks(self) -> Mapping[Capability, str]:
        """What it cannot do and why."""
        return self._lacks

    @property
    def forward_passes(self) -> int:
        """Images pushed through either so far."""
        return self._inner.forward_passes + (0 if self._inside is self._inner else self._inside.forward_passes)

    @property
    def backward_passes(self) -> int:
        """Images whose gradients were taken so far."""
        return self._inside.backward_passes

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Logits or log-probabilities (n, K)."""
        return self._inner.logits(images)

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits (n, K), loss (n,) and its gradient (n, c, h, w), all of the classifier that gives gradients.

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """
        return self._able(Capability.GRADIENTS).loss_gradient(images, loss)

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and their Jacobian (n, K, c*h*w), both of the classifier that gives gradients.

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """
        return self._able(Capability.GRADIENTS).jacobian(images)

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (n, K) and their derivatives (n, K) along `directions`, both of the classifier that gives gradients.

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """
        return self._able(Capability.GRADIENTS).jvp(images, directions)

    def activations(self, images: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Neurons (n, units) of each layer.

        Raises:
            MissingCapability: it lacks ACTIVATIONS.
        """
        return self._able(Capability.ACTIVATIONS).activations(images)

    def _able(self, capability: Capability) -> Classifier:
        if capability in self._lacks:
            raise MissingCapability(self._lacks[capability])
        return self._inside


def with_surrogate(classifier: Classifier, surrogate: Classifier) -> Classifier:
    """The classifier with another model beside it, which transfer attacks are crafted on."""
    other = surrogate.identity
    identity = replace(classifier.identity, surrogate=f"{other.label} (sha256 {other.digest[:12]})")
    return ComposedClassifier(classifier, identity=identity, lacks=classifier.lacks, surrogate=surrogate)


def surrogate_of(classifier: Classifier) -> Classifier | None:
    """The model that transfer attacks on `classifier` are crafted on."""
    return classifier.surrogate if isinstance(classifier, ComposedClassifier) else None


def black_box(classifier: Classifier, because: str) -> Classifier:
    """The classifier as somebody sees it who can only ask it: no gradients and no activations, `because`."""
    lacks = {**classifier.lacks, Capability.GRADIENTS: because, Capability.ACTIVATIONS: because}
    return ComposedClassifier(classifier, identity=classifier.identity, lacks=lacks)
