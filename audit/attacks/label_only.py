"""What the label-only attacks share: a random start, the way from there to the boundary, and the closest point met.

They look for the closest misclassified image and read nothing of an answer but its class. For all examples of a batch they ask the
same number of questions at a time, so that no compute block is sent half empty while another example catches up.
"""

from __future__ import annotations

import torch

from audit.attacks.ball import distance
from audit.attacks.l1_ball import nearest_l1
from audit.attacks.randomness import generator
from audit.attacks.run import Batch, Oracle, misclassified
from audit.vocabulary import Norm

# How much of the noise a start keeps beside the image, and the sides of the cells that share a value.
_SHARES = (1.0, 0.75, 0.5)
_CELLS = (1, 2, 4, 8)


class Closest:
    """Per example the closest misclassified image met: `images` (n, c, h, w), `distances` (n,) float64, inf where none was."""

    def __init__(self, oracle: Oracle, batch: Batch, norm: Norm) -> None:
        self.images = batch.images.clone()
        self.distances = torch.full((len(batch),), torch.inf, dtype=torch.float64, device=batch.images.device)
        self._oracle, self._norm = oracle, norm

    def asked(self, live: Batch, points: torch.Tensor) -> torch.Tensor:
        """Whether `points` (m, q, c, h, w) of the examples `live` are misclassified, (m, q); none of them is kept."""
        count = points.shape[1]
        logits = self._oracle.several(live, points)
        return misclassified(logits.flatten(0, 1), live.labels.repeat_interleave(count)).view(-1, count)

    def ask(self, rows: torch.Tensor, live: Batch, points: torch.Tensor) -> torch.Tensor:
        """The same, keeping what is closer than anything before; the examples are `rows` (m,) here."""
        wrong = self.asked(live, points)
        for index in range(points.shape[1]):
            gone = distance(points[:, index], live.images, self._norm)
            better = wrong[:, index] & (gone < self.distances[rows])
            self.images[rows[better]] = points[better, index]
            self.distances[rows[better]] = gone[better]
        return wrong


def random_starts(closest: Closest, batch: Batch, *, draws: int, seed: int, purpose: str) -> None:
    """Ask about `draws` random images per example: noise in cells of several sizes, alone or mixed into the image.

    Half of the noise is uniform, half black and white: some classes are all that a model sees in uniform noise.
    """
    c, h, w = batch.images.shape[1:]
    starts = []
    for image, name in zip(batch.images, batch.ids, strict=True):
        source, own = generator(seed, name, f"{purpose} start"), []
        for draw in range(draws):
            cell = min(_CELLS[draw // 2 % len(_CELLS)], h, w)
            noise = torch.rand((c, -(-h // cell), -(-w // cell)), generator=source)
            noise = noise if draw % 2 == 0 else (noise < 0.5).float()
            noise = noise.repeat_interleave(cell, dim=1)[:, :h].repeat_interleave(cell, dim=2)[:, :, :w].to(image)
            share = _SHARES[draw // (2 * len(_CELLS)) % len(_SHARES)]
            own.append(share * noise + (1 - share) * image)
        starts.append(torch.stack(own))
    closest.ask(torch.arange(len(batch), device=batch.images.device), batch, torch.stack(starts))


def toward(images: torch.Tensor, points: torch.Tensor, share: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The nearest image to each of `points` (n, c, h, w) in the ball whose radius is `share` (n,) of its distance from `images`."""
    per_row = share.to(points).view(-1, 1, 1, 1)
    if norm is Norm.L2:
        return images + per_row * (points - images)
    radius = share * distance(points, images, norm)
    if norm is Norm.L1:
        return nearest_l1(images, points, radius)
    bound = radius.to(points).view(-1, 1, 1, 1)
    return torch.minimum(torch.maximum(points, images - bound), images + bound).clamp(0, 1)


def to_the_boundary(
    closest: Closest, rows: torch.Tensor, live: Batch, points: torch.Tensor, norm: Norm, halvings: int
) -> torch.Tensor:
    """The misclassified image found by halving between the clean images and misclassified `points`, (m, c, h, w)."""
    low = torch.zeros(len(live), dtype=torch.float64, device=points.device)
    high, reached = torch.ones_like(low), points
    for _ in range(halvings):
        middle = (low + high) / 2
        at = toward(live.images, points, middle, norm)
        wrong = closest.ask(rows, live, at[:, None])[:, 0]
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
        reached = torch.where(wrong.view(-1, 1, 1, 1), at, reached)
    return reached
