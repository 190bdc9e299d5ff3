"""A classifier around another one: what both say alike is said once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from audit.models import Classifier
from audit.result import ModelIdentity
from audit.vocabulary import Capability


class Around:
    """Everything that a subclass does not say otherwise is that of `inner`, but for the answers; the identity is its own."""

    def __init__(self, inner: Classifier, identity: ModelIdentity) -> None:
        self._inner = inner
        self._identity = identity

    @property
    def identity(self) -> ModelIdentity:
        """What was loaded."""
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
        """Images pushed through the model so far, every call counted."""
        return self._inner.forward_passes

    @property
    def backward_passes(self) -> int:
        """Images whose gradients were taken so far, every call counted."""
        return self._inner.backward_passes
