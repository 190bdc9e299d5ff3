"""The Square attack: random search with local changes (Andriushchenko et al. 2020, arXiv 1912.00049; L1: Croce & Hein 2021).

Linf changes squares, L2 and L1 move mass between windows (`pyramids`). Differs from the papers' code in: windows may touch the last
row and column (there an off-by-one keeps them out), and a proposal that changes nothing is flipped once instead of redrawn.
"""

from __future__ import annotations

import math

import torch

from audit.attacks.ball import Ball
from audit.attacks.pyramids import move_mass, tiles
from audit.attacks.randomness import generators
from audit.attacks.run import Batch, Oracle
from audit.attacks.strongest import Strongest
from audit.vocabulary import Norm, Threat

# Share of the image in the first window: the papers' value for every norm.
INITIAL_SHARE = 0.8
# (iterations out of 10000, divisor of the share): the paper's schedule.
_SCHEDULE = ((10, 1), (50, 2), (200, 4), (500, 8), (1000, 16), (2000, 32), (4000, 64), (6000, 128), (8000, 256))


def window_side(query: int, queries: int, height: int, width: int) -> int:
    """Side of the square at `query` of `queries`, in pixels, at least 1.

    >>> [window_side(q, 1000, 28, 28) for q in (1, 100, 900)]
    [25, 6, 1]
    """
    scaled = int(query / queries * 10000)
    divisor = next((divisor for until, divisor in _SCHEDULE if scaled <= until), 512)
    return min(max(round(math.sqrt(INITIAL_SHARE / divisor * height * width)), 1), height, width)


def square(
    oracle: Oracle, batch: Batch, threat: Threat, *, queries: int, seed: int, purpose: str, stop_early: bool
) -> torch.Tensor:
    """The image of largest margin met, (n, c, h, w), starting from vertical stripes (Linf) or a tiling of pyramids (L2, L1).

    Args:
        oracle: the model; only its logits are used.
        batch: clean images and labels.
        threat: any norm.
        queries: forward passes per example, the first one included.
        seed: of the audit.
        purpose: names the random draws.
        stop_early: drop an example once misclassified; otherwise continue on the margin for the full query count.
    """
    if threat.epsilon == 0 or not len(batch) or queries < 1:
        return batch.images.clone()
    _, c, h, w = batch.images.shape
    device, ball = batch.images.device, Ball.around(batch.images, threat)
    linf = threat.norm is Norm.LINF
    sources = generators(seed, batch.ids, purpose)
    if linf:
        stripes = torch.stack([torch.rand((c, 1, w), generator=source) < 0.5 for source in sources])
        first = torch.where(stripes.to(device), ball.high, ball.low)
    else:
        first = tiles(ball, sources)
    # Place and signs of each later change, in [0, 1).
    numbers = (2 if linf else 5) + c
    draws = torch.stack([torch.rand((queries - 1, numbers), generator=source) for source in sources]).to(device)
    found = Strongest(batch)
    alive = torch.arange(len(batch), device=device)
    broken = found.note(alive, first, oracle.logits(batch, first), batch)
    # What was not answered is still a place to go on from.
    found.images[found.highest.isinf()] = first[found.highest.isinf()]
    if stop_early:
        alive = (~broken).nonzero()[:, 0]
    live, ball = batch.take(alive), ball.take(alive)
    for query in range(1, queries):
        if not len(live):
            break
        points, u = found.images[alive], draws[alive, query - 1]
        side = window_side(query, queries, h, w)
        proposal = change_square(ball, points, u, side) if linf else move_mass(ball, points, u, side)
        broken = found.note(alive, proposal, oracle.logits(live, proposal), live)
        if stop_early and bool(broken.any()):
            kept = (~broken).nonzero()[:, 0]
            alive, live, ball = alive[kept], live.take(kept), ball.take(kept)
    return found.images


def change_square(ball: Ball, points: torch.Tensor, u: torch.Tensor, side: int) -> torch.Tensor:
    """`points` (n, c, h, w) with one square of each image at a bound of its ball; `u` (n, 2 + c) gives corner and signs."""
    h, w = points.shape[2:]
    rows, columns = torch.arange(h, device=points.device), torch.arange(w, device=points.device)
    top = (u[:, 0] * (h - side + 1)).long().clamp(max=h - side)[:, None]
    left = (u[:, 1] * (w - side + 1)).long().clamp(max=w - side)[:, None]
    in_rows, in_columns = (rows >= top) & (rows < top + side), (columns >= left) & (columns < left + side)
    window = (in_rows[:, :, None] & in_columns[:, None, :])[:, None]
    up = (u[:, 2:] < 0.5)[:, :, None, None]
    proposal = torch.where(window, torch.where(up, ball.high, ball.low), points)
    idle = (proposal == points).flatten(1).all(dim=1).view(-1, 1, 1, 1)
    return torch.where(idle & window, torch.where(up, ball.low, ball.high), proposal)
