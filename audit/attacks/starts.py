"""Where a search starts inside the ball: named rules, each drawn from the example's own generator.

Structured starts (blocks, stripes, low frequencies) reach faces of the ball that noise does not: on networks with a rugged loss
they about double the success of another restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from audit.attacks.ball import Ball
from audit.attacks.l1_ball import row_sum
from audit.attacks.randomness import generators
from audit.attacks.run import Batch
from audit.vocabulary import Norm

_BLOCKS = 7
_COSINES = 3
# Smallest divisor of a direction's size: a direction of zeros stays one.
_TINY = 1e-12

Direction = Callable[[Sequence[int], torch.Generator], torch.Tensor]


def _uniform(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    return 2 * torch.rand(tuple(shape), generator=source) - 1


def _signs(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(tuple(shape), generator=source) < 0.5, -1.0, 1.0)


def _blocks(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    """One sign per channel for each of 7 x 7 blocks."""
    c, h, w = shape
    coarse = _signs((c, min(_BLOCKS, h), min(_BLOCKS, w)), source)
    rows, columns = (torch.arange(size) * min(_BLOCKS, size) // size for size in (h, w))
    return coarse[:, rows][:, :, columns]


def _stripes(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    """One sign per channel for each column."""
    c, h, w = shape
    return _signs((c, 1, w), source).expand(c, h, w)


def _dct3(shape: Sequence[int], source: torch.Generator) -> torch.Tensor:
    """A random mix of the 3 x 3 lowest cosines per channel, the largest value 1 in size."""
    c, h, w = shape
    vertical, horizontal = _cosines(h), _cosines(w)
    mixed = vertical.T @ _uniform((c, len(vertical), len(horizontal)), source) @ horizontal
    return mixed / mixed.abs().amax().clamp(min=_TINY)


def _cosines(size: int) -> torch.Tensor:
    """The lowest vectors of the discrete cosine transform, (min(3, size), size)."""
    k = torch.arange(min(_COSINES, size))[:, None]
    basis = torch.cos(math.pi * (torch.arange(size) + 0.5) * k / size)
    basis[0] /= math.sqrt(2)
    return basis


DIRECTIONS: Mapping[str, Direction] = {"uniform": _uniform, "blocks": _blocks, "stripes": _stripes, "dct3": _dct3}
CLEAN = "clean"
STARTS = (CLEAN, *DIRECTIONS)


def start_points(start: str, ball: Ball, batch: Batch, seed: int, purpose: str) -> torch.Tensor:
    """Allowed images (n, c, h, w), each a function of (seed, example, purpose): the clean ones, or a random direction away.

    Linf goes epsilon times the direction; L2 goes to the edge of the ball, whatever the pixel range cuts off; L1 takes the nearest
    allowed image to one far away along it, which changes some of the pixels only.
    """
    if start == CLEAN or not len(batch):
        return batch.images.clone()
    shape = batch.images.shape[1:]
    drawn = [DIRECTIONS[start](shape, source) for source in generators(seed, batch.ids, purpose)]
    direction = torch.stack(drawn).to(batch.images)
    if ball.threat.norm is Norm.L2:
        return ball.farthest(direction)
    if ball.threat.norm is Norm.LINF:
        return ball.project(ball.images + ball.threat.epsilon * direction)
    size = (row_sum(direction.abs()) / shape.numel()).clamp(min=_TINY)
    return ball.project(ball.images + direction / size.view(-1, 1, 1, 1))
