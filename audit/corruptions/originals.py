"""A batch of images as the published generators see them: 8 bits per value, with the random numbers of their examples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from audit.corruptions.draws import Draws
from audit.corruptions.parameters import Row


@dataclass(frozen=True, kw_only=True)
class Originals:
    """`levels` (n, c, h, w) uint8, c in {1, 3} in the order RGB; `unit` the same as float32 in [0, 1]."""

    levels: torch.Tensor
    unit: torch.Tensor
    draws: Draws

    @property
    def shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""
        _, c, h, w = self.levels.shape
        return c, h, w


# (images, parameters) -> (n, c, h, w) float32, not yet clipped, or uint8.
Corrupt = Callable[[Originals, Row], torch.Tensor]
