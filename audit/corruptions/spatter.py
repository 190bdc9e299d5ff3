"""Spatter: drops of water, or mud."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from audit.corruptions.filters import colour, convolved, smooth
from audit.corruptions.originals import Originals
from audit.corruptions.parameters import Row

_WATER = (175, 238, 238)
_MUD = (63, 42, 20)
# Mud below this density is none.
_THIN_MUD = 0.8
# Distances to an edge are cut here, in pixels.
_FARTHEST = 20
_WEAK_EDGE, _STRONG_EDGE = 50, 150
# Tangents of 22.5 and 67.5 degrees: where a gradient counts as horizontal or vertical.
_FLAT, _STEEP = 0.41421356, 2.41421356
_EMBOSS = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
_BOX = torch.full((3, 3), 1 / 9)


def spatter(images: Originals, row: Row) -> torch.Tensor:
    """Water that shines along the rims of its drops, or opaque mud. Where nothing is wet the image stays as it is.

    Differs from the source there: it divides 0 by 0 and gives a black image.
    """
    mean, deviation, sigma, threshold, amount, mud = row
    _, height, width = images.shape
    liquid = smooth(mean + deviation * images.draws.normal("drops", 1, height, width), sigma)
    liquid = liquid.masked_fill(liquid < threshold, 0)
    if mud:
        cover = smooth((liquid > threshold).float(), amount)
        cover = cover.masked_fill(cover < _THIN_MUD, 0)
        return images.unit * (1 - cover) + colour(_MUD, images.unit) * cover
    wet = liquid * _rims(liquid)
    wet = wet / wet.amax(dim=(2, 3), keepdim=True).clamp(min=1e-6) * amount
    return images.unit + wet * colour(_WATER, images.unit)


def _rims(liquid: torch.Tensor) -> torch.Tensor:
    """How far each pixel is from an edge of the liquid (n, 1, h, w), equalised and embossed, in whole grey levels."""
    # The source lets 8 bits overflow.
    edges = canny((liquid * 255).floor().remainder(256))
    distance = equalised(convolved(to_edge(edges), _BOX).floor())
    embossed = convolved(distance, _EMBOSS).clamp(0, 255)
    return convolved(embossed, _BOX).round()


def canny(images: torch.Tensor) -> torch.Tensor:
    """Edges (n, 1, h, w) bool of grey levels (n, 1, h, w), Canny 1986 with Sobel gradients and L1 strength as OpenCV has it."""
    height, width = images.shape[-2:]
    padded = F.pad(images, (1,) * 4, mode="replicate")

    def beside(planes: torch.Tensor, dy: int, dx: int) -> torch.Tensor:
        return planes[..., 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    across = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    gx, gy = down[..., 2:] - down[..., :-2], across[..., 2:, :] - across[..., :-2, :]
    ax, ay = gx.abs(), gy.abs()
    strength = ax + ay
    around = F.pad(strength, (1,) * 4)

    def largest(first: tuple[int, int], second: tuple[int, int], *, strict: bool) -> torch.Tensor:
        other = beside(around, *second)
        return (strength > beside(around, *first)) & ((strength > other) if strict else (strength >= other))

    diagonal = torch.where(gx * gy >= 0, largest((-1, -1), (1, 1), strict=True), largest((-1, 1), (1, -1), strict=True))
    crest = torch.where(
        ay < ax * _FLAT,
        largest((0, -1), (0, 1), strict=False),
        torch.where(ay > ax * _STEEP, largest((-1, 0), (1, 0), strict=False), diagonal),
    )
    possible = crest & (strength > _WEAK_EDGE)
    edges = possible & (strength > _STRONG_EDGE)
    while True:  # Grows by a pixel each time, inside what is possible: it ends.
        wider = edges.clone()
        wider[..., 1:] |= edges[..., :-1]
        wider[..., :-1] |= edges[..., 1:]
        higher = wider.clone()
        higher[..., 1:, :] |= wider[..., :-1, :]
        higher[..., :-1, :] |= wider[..., 1:, :]
        higher &= possible
        if torch.equal(higher, edges):
            return edges
        edges = higher


def to_edge(edges: torch.Tensor) -> torch.Tensor:
    """The Euclidean distance of each pixel to the nearest edge (n, 1, h, w), at most 20.

    First along the rows, where running maxima find the nearest edge on either side; then over at most 20 rows up and down.
    """
    width, height = edges.shape[-1], edges.shape[-2]
    place = torch.arange(width, device=edges.device, dtype=torch.int16).expand(edges.shape)
    none = -_FARTHEST

    def last(found: torch.Tensor) -> torch.Tensor:
        return torch.where(found, place, none).cummax(dim=-1).values

    left = place - last(edges)
    right = (place - last(edges.flip(-1))).flip(-1)
    along = torch.minimum(left, right).clamp(max=_FARTHEST)
    squared = along * along
    nearest = squared.clone()
    for step in range(1, min(_FARTHEST, height - 1) + 1):
        torch.minimum(nearest[..., step:, :], squared[..., :-step, :] + step * step, out=nearest[..., step:, :])
        torch.minimum(nearest[..., :-step, :], squared[..., step:, :] + step * step, out=nearest[..., :-step, :])
    return nearest.float().sqrt()


def equalised(levels: torch.Tensor) -> torch.Tensor:
    """The histogram of each row of whole grey levels (n, 1, h, w) equalised, as OpenCV does."""
    flat = levels.flatten(1).long()
    size = flat.shape[1]
    histogram = torch.zeros(len(flat), 256, device=levels.device).scatter_add_(1, flat, torch.ones_like(flat, dtype=torch.float32))
    darkest = (histogram > 0).float().argmax(dim=1, keepdim=True)
    least = histogram.gather(1, darkest)
    share = (histogram.cumsum(dim=1) - least) * 255 / (size - least).clamp(min=1)
    lookup = torch.where(size > least, share.round().clamp(0, 255), darkest.float())
    return lookup.gather(1, flat).view_as(levels)
