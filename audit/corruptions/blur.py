"""Gaussian, defocus, glass, motion and zoom blur."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from audit.corruptions.filters import (
    both_ways,
    convolved,
    disc,
    in_8_bits,
    pixel_grid,
    read_at,
    smooth,
    spectrally_convolved,
    streak,
)
from audit.corruptions.originals import Originals
from audit.corruptions.parameters import Row

# Below this side a crop of whole pixels is often no zoom at all.
_FEWEST_CROPPED = 32
# Kernels up to this reach cost less as sums of shifted images.
_SMALL_REACH = 2


def gaussian_blur(images: Originals, row: Row) -> torch.Tensor:
    """A Gaussian of the given sigma."""
    return smooth(images.unit, row[0])


def defocus_blur(images: Originals, row: Row) -> torch.Tensor:
    """A softened disc of the given radius."""
    kernel = disc(float(row[0]), float(row[1]))
    reach = kernel.shape[0] // 2
    if reach == 0:
        return images.unit
    return convolved(images.unit, kernel) if reach <= _SMALL_REACH else spectrally_convolved(images.unit, kernel)


def motion_blur(images: Originals, row: Row) -> torch.Tensor:
    """Motion along an angle between -45 and 45 degrees."""
    angles = images.draws.uniform("angle", 1)[:, 0] * 90 - 45
    return streak(images.unit, int(row[0]), row[1], angles.tolist())


@lru_cache(maxsize=512)
def _zoom(size: int, factor: float) -> torch.Tensor:
    """The matrix (size, size) that enlarges the middle of a line: its crop, interpolated to about `size`, then trimmed."""
    crop = math.ceil(size / factor)
    start, enlarged = (size - crop) // 2, round(crop * factor)
    trimmed = (enlarged - size) // 2
    matrix = torch.zeros(size, size, dtype=torch.float64)
    for place in range(size):
        at = (place + trimmed) * (crop - 1) / (enlarged - 1) if enlarged > 1 else 0.0
        low = min(int(at), crop - 1)
        matrix[place, start + low] += 1 - (at - low)
        matrix[place, start + min(low + 1, crop - 1)] += at - low
    return matrix.float()


def zoom_blur(images: Originals, row: Row) -> torch.Tensor:
    """The mean of the image and its enlargements by growing factors."""
    factors = np.arange(1, row[0], row[1]).tolist()
    _, height, width = images.shape
    total = images.unit.clone()
    if min(height, width) < _FEWEST_CROPPED:
        x, y = pixel_grid(height, width, images.unit.device)
        middle_x, middle_y, n = (width - 1) / 2, (height - 1) / 2, len(total)
        for factor in factors:
            at_x = ((x - middle_x) / factor + middle_x).expand(n, height, width)
            at_y = ((y - middle_y) / factor + middle_y).expand(n, height, width)
            total += read_at(images.unit, at_x, at_y, "edge")
    else:
        for factor in factors:
            total += both_ways(images.unit, _zoom(height, factor), _zoom(width, factor))
    return total / (len(factors) + 1)


def glass_blur(images: Originals, row: Row) -> torch.Tensor:
    """A blur, pixels copied from their neighbours in raster order from the last to the first, and a blur again.

    The published code means to swap, but on its array views the second half of a swap undoes nothing: each pixel becomes a copy of
    its neighbour, which may have become a copy before. Following all these chains at once by pointer doubling gives what walking
    over the pixels one by one gives.
    """
    sigma, reach, rounds = row[0], int(row[1]), int(row[2])
    n, (c, height, width) = len(images.unit), images.shape
    size, device = height * width, images.unit.device
    pixels = in_8_bits(smooth(images.unit, sigma)).float().view(n, c, size)
    down, right = (torch.arange(side, device=device) for side in (height, width))
    moved = ((down > reach) & (down <= height - reach))[:, None] & ((right > reach) & (right <= width - reach))[None]
    moved, here = moved.reshape(-1), torch.arange(size, device=device)
    for turn in range(rounds):
        dy, dx = (
            (images.draws.uniform(f"{axis} {turn}", size) * (2 * reach)).long() - reach for axis in ("vertical", "horizontal")
        )
        source = torch.where(moved, here + dy * width + dx, here)
        # A source later in raster order has been overwritten by the time it is read: what it became is followed.
        follows = (source > here) & moved[source]
        pointer = torch.where(follows, source, here)
        for _ in range(size.bit_length()):
            farther = pointer.gather(1, pointer)
            if torch.equal(farther, pointer):
                break
            pointer = farther
        # The end of a chain reads a pixel that was not yet overwritten.
        ends = torch.where(follows, here, source).gather(1, pointer)
        pixels = pixels.gather(2, ends[:, None].expand(-1, c, -1))
    return smooth((pixels / 255).view(n, c, height, width), sigma)
