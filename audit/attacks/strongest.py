"""What an attack keeps on its way: per example, the image of largest margin met so far."""

from __future__ import annotations

import torch

from audit.attacks.losses import margin
from audit.attacks.run import Batch, misclassified


class Strongest:
    """`images` (n, c, h, w) and their margins `highest` (n,): the clean image, at minus infinity, until a point was noted."""

    def __init__(self, batch: Batch) -> None:
        self.images = batch.images.clone()
        self.highest = torch.full((len(batch),), -torch.inf, device=batch.images.device)

    def note(self, rows: torch.Tensor, points: torch.Tensor, logits: torch.Tensor, live: Batch) -> torch.Tensor:
        """Take in `points` (m, c, h, w) of the examples `live`, which are `rows` (m,) here; whether each is misclassified, (m,).

        A row that was not answered (NaN) is never kept. A tie of logits may be an error all the same: then it is the stronger of
        two equal margins.
        """
        reached = margin(logits, live.labels)
        broken = misclassified(logits, live.labels)
        better = (reached > self.highest[rows]) | (broken & (reached == self.highest[rows]))
        self.images[rows[better]] = points[better]
        self.highest[rows[better]] = reached[better]
        return broken
