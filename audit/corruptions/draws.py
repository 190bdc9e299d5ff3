"""The random numbers of a batch of images: they belong to (seed, example id, kind), not to the severity or the place in a batch.

The severities of one image thereby share their draws (the same flakes, the same direction of motion), as stronger versions of one
disturbance: without that, the pixel distance of motion blur rises with severity on 37 % of the images only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from audit.attacks.randomness import generators


class Draws:
    """Numbers of one batch and kind. They are kept, so that the severities that ask for the same ones pay once."""

    def __init__(self, seed: int, ids: Sequence[str], kind: str, device: torch.device) -> None:
        self._seed = seed
        self._ids = ids
        self._kind = kind
        self._device = device
        self._kept: dict[tuple[str, str, tuple[int, ...]], torch.Tensor] = {}

    def uniform(self, name: str, *shape: int) -> torch.Tensor:
        """(n, *shape) float32, uniform on [0, 1). Do not change it in place."""
        return self._drawn("uniform", name, shape)

    def normal(self, name: str, *shape: int) -> torch.Tensor:
        """(n, *shape) float32, standard normal. Do not change it in place."""
        return self._drawn("normal", name, shape)

    def _drawn(self, law: str, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        key = (law, name, shape)
        if key not in self._kept:
            draw = torch.rand if law == "uniform" else torch.randn
            rows = torch.empty(len(self._ids), *shape)
            # Drawn on the CPU: the same numbers on every device.
            for row, source in zip(rows, generators(self._seed, self._ids, f"corruption {self._kind} {name}"), strict=True):
                draw(shape, generator=source, out=row)
            self._kept[key] = rows.to(self._device)
        return self._kept[key]
