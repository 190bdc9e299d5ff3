"""A model that answers at random, audited as what it answers on average (expectation over transformations, Athalye et al. 2018)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from audit.models import Classifier, RowLoss
from audit.models.around import Around
from audit.models.outputs import PROBABILITY_FLOOR
from audit.vocabulary import Capability


class AveragedClassifier(Around):
    """The logarithm of the mean softmax of K calls; of a model that gives labels only, the class most calls answered.

    A loss's gradient is the mean of its gradients in K calls (arXiv 1707.07397, section 2.1).
    """

    def __init__(self, inner: Classifier, calls: int) -> None:
        self._calls = calls
        caution = f"The model answers at random: every answer here is the mean of {calls} calls (--eot {calls})."
        super().__init__(inner, replace(inner.identity, averaged=calls, cautions=(*inner.identity.cautions, caution)))

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Log of the mean probabilities (n, K); one-hot rows of the commonest answer where it lacks SCORES."""
        if Capability.SCORES in self._inner.lacks:
            votes = self._mean(lambda: (self._inner.logits(images),))[0]
            return torch.nn.functional.one_hot(votes.argmax(dim=1), self.classes).to(votes)
        return _log(self._mean(lambda: (self._inner.logits(images).softmax(dim=1),))[0])

    def loss_gradient(self, images: torch.Tensor, loss: RowLoss) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Log of the mean probabilities (n, K), mean loss (n,) and mean gradient (n, c, h, w).

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """

        def call() -> tuple[torch.Tensor, ...]:
            logits, values, gradient = self._inner.loss_gradient(images, loss)
            return logits.softmax(dim=1), values, gradient

        probabilities, values, gradient = self._mean(call)
        return _log(probabilities), values, gradient

    def jacobian(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log of the mean probabilities (n, K) and its Jacobian (n, K, c*h*w).

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """

        def call() -> tuple[torch.Tensor, ...]:
            logits, rows = self._inner.jacobian(images)
            p = logits.softmax(dim=1)[:, :, None]
            return p[:, :, 0], p * (rows - (p * rows).sum(dim=1, keepdim=True))

        probabilities, slopes = self._mean(call)
        return _log(probabilities), slopes / probabilities.clamp(min=PROBABILITY_FLOOR)[:, :, None]

    def jvp(self, images: torch.Tensor, directions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Log of the mean probabilities (n, K) and its derivatives (n, K) along `directions`.

        Raises:
            MissingCapability: it lacks GRADIENTS.
        """

        def call() -> tuple[torch.Tensor, ...]:
            logits, slopes = self._inner.jvp(images, directions)
            p = logits.softmax(dim=1)
            return p, p * (slopes - (p * slopes).sum(dim=1, keepdim=True))

        probabilities, slopes = self._mean(call)
        return _log(probabilities), slopes / probabilities.clamp(min=PROBABILITY_FLOOR)

    def activations(self, images: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Mean neurons (n, units) of each layer.

        Raises:
            MissingCapability: it lacks ACTIVATIONS.
        """
        names = tuple(self._inner.activations(images[:1]))
        return dict(zip(names, self._mean(lambda: tuple(self._inner.activations(images).values())), strict=True))

    def _mean(self, call: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[torch.Tensor, ...]:
        totals = call()
        for _ in range(self._calls - 1):
            totals = tuple(total + more for total, more in zip(totals, call(), strict=True))
        return tuple(total / self._calls for total in totals)


def _log(probabilities: torch.Tensor) -> torch.Tensor:
    return probabilities.clamp(min=PROBABILITY_FLOOR).log()
