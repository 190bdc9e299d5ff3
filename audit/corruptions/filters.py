"""What several corruptions are made of: smoothing, streaks, shifted reads. Nothing here depends on the rows beside a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F

# The luma of ITU-R BT.601, by which a colour becomes a grey value.
LUMA = (0.299, 0.587, 0.114)
# Keeps what is a whole grey level one, where float32 gives a little less.
_GUARD = 1e-3
# cv2's Gaussian window of the blurred disc is this wide, and five where the disc is large.
_NARROW_WINDOW, _WIDE_WINDOW, _LARGE_DISC = 3, 5, 8


def in_8_bits(values: torch.Tensor) -> torch.Tensor:
    """[0, 1] clipped and cut down to whole grey levels, uint8; the published generators cut, they do not round. uint8 stays."""
    if values.dtype == torch.uint8:
        return values
    return values.clamp(0, 1).mul(255).add_(_GUARD).floor_().to(torch.uint8)


def grey(images: torch.Tensor) -> torch.Tensor:
    """(n, c, h, w) -> (n, 1, h, w)."""
    if images.shape[1] == 1:
        return images
    return sum((weight * images[:, index : index + 1] for index, weight in enumerate(LUMA)), torch.zeros_like(images[:, :1]))


def colour(rgb: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    """A colour given in [0, 255] as (1, c, 1, 1) in [0, 1]; its luma for grey images."""
    values = [value / 255 for value in rgb]
    if like.shape[1] == 1:
        values = [sum(weight * value for weight, value in zip(LUMA, values, strict=True))]
    return torch.tensor(values, device=like.device).view(1, -1, 1, 1)


def both_ways(images: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """R x C^T for every plane x (h, w) of (n, c, h, w).

    One product per plane: folded into one large product, a plane's result would depend on how many there are.
    """
    n, c, h, w = images.shape
    planes = images.reshape(n * c, h, w)
    planes = torch.bmm(planes, columns.T.to(planes).expand(n * c, -1, -1))
    return torch.bmm(rows.to(planes).expand(n * c, -1, -1), planes).view(n, c, rows.shape[0], columns.shape[0])


@lru_cache(maxsize=256)
def _smoothing(size: int, sigma: float, border: str, truncate: float) -> torch.Tensor | None:
    """The matrix (size, size) that smooths a line; None where the kernel is a single pixel."""
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return None
    offsets = torch.arange(-reach, reach + 1)
    weights = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    places = torch.arange(size)[:, None] + offsets[None]
    if border == "nearest":
        places = places.clamp(0, size - 1)
    else:  # the line mirrored at its ends, however far the kernel reaches
        places = places.remainder(2 * size)
        places = torch.where(places >= size, 2 * size - 1 - places, places)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, places, (weights / weights.sum()).expand(size, -1).contiguous())
    return matrix.float()


def smooth(images: torch.Tensor, sigma: float, *, border: str = "nearest", truncate: float = 4.0) -> torch.Tensor:
    """A Gaussian blur of (n, c, h, w); as matrices, since a wide kernel reaches farther than padding by reflection can."""
    rows = _smoothing(images.shape[2], float(sigma), border, truncate)
    columns = _smoothing(images.shape[3], float(sigma), border, truncate)
    return images if rows is None or columns is None else both_ways(images, rows, columns)


def streak(images: torch.Tensor, reach: int, sigma: float, angles: Sequence[float]) -> torch.Tensor:
    """Motion blur of each row of (n, c, h, w) along its own angle (degrees): one half of a Gaussian, edges repeated.

    The weights that stay inside the image are made to sum to 1: cut kernels darken small images.
    """
    height, width = images.shape[2:]
    steps = 2 * reach + 1
    weights = torch.exp(-0.5 * (torch.arange(steps, dtype=torch.float64) / sigma) ** 2).tolist()
    found = torch.zeros_like(images)
    for angle in dict.fromkeys(angles):
        # Along a sequence all images move in one direction.
        rows = [row for row, own in enumerate(angles) if own == angle]
        down, right = math.sin(math.radians(angle)), math.cos(math.radians(angle))
        taps: dict[tuple[int, int], float] = {}
        for step, weight in enumerate(weights):
            shift = -math.ceil(step * down - 0.5), -math.ceil(step * right - 0.5)
            if abs(shift[0]) >= height or abs(shift[1]) >= width:
                break
            taps[shift] = taps.get(shift, 0.0) + weight
        total = sum(taps.values())
        high, wide = (max(abs(shift[axis]) for shift in taps) for axis in (0, 1))
        padded = F.pad(images[rows], (wide, wide, high, high), mode="replicate")
        blurred = torch.zeros_like(images[rows])
        for (dy, dx), weight in taps.items():
            part = padded[:, :, high - dy : high - dy + height, wide - dx : wide - dx + width]
            blurred.add_(part, alpha=weight / total)
        found[rows] = blurred
    return found


def mirrored(images: torch.Tensor, reach: int) -> torch.Tensor:
    """(..., h, w) with `reach` more pixels on each side, mirrored about the edge pixels, as often as it takes."""
    if images.ndim == 4 and reach < min(images.shape[-2:]):
        return F.pad(images, (reach,) * 4, mode="reflect")

    def places(size: int) -> torch.Tensor:
        period = max(2 * size - 2, 1)
        index = torch.arange(-reach, size + reach, device=images.device).remainder(period)
        return torch.where(index >= size, period - index, index)

    return images[..., places(images.shape[-2])[:, None], places(images.shape[-1])[None]]


def convolved(images: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """(n, c, h, w) with a small square kernel (odd side), mirrored at the edges: a sum of shifted images, tap by tap."""
    height, width = images.shape[-2:]
    padded, found = mirrored(images, kernel.shape[0] // 2), torch.zeros_like(images)
    for dy, line in enumerate(kernel.tolist()):
        for dx, weight in enumerate(line):
            if weight:
                found.add_(padded[..., dy : dy + height, dx : dx + width], alpha=weight)
    return found


@lru_cache(maxsize=64)
def disc(radius: float, sigma: float) -> torch.Tensor:
    """A uniform disc softened by a narrow Gaussian, cut down to where it is not zero, (k, k) float32."""
    large = radius > _LARGE_DISC
    line = torch.arange(-math.floor(radius), math.floor(radius) + 1) if large else torch.arange(-_LARGE_DISC, _LARGE_DISC + 1)
    found = ((line[:, None] ** 2 + line[None] ** 2) <= radius**2).double()
    half = (_WIDE_WINDOW if large else _NARROW_WINDOW) // 2
    window = torch.exp(-0.5 * (torch.arange(-half, half + 1).double() / sigma) ** 2)
    window = window / window.sum()
    found = convolved((found / found.sum())[None, None], window[:, None] * window[None])[0, 0]
    centre = len(line) // 2
    reach = int(((found > 1e-12).nonzero() - centre).abs().max())
    return found[centre - reach : centre + reach + 1, centre - reach : centre + reach + 1].float()


def spectrally_convolved(images: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The same as `convolved` for large symmetric kernels, by Fourier transforms."""
    n, c, height, width = images.shape
    reach = kernel.shape[0] // 2
    padded = mirrored(images, reach).reshape(n * c, height + 2 * reach, width + 2 * reach)
    shape = [1 << (side + 2 * reach - 1).bit_length() for side in (height, width)]
    product = torch.fft.rfft2(padded, s=shape) * torch.fft.rfft2(kernel.to(images), s=shape)
    found: torch.Tensor = torch.fft.irfft2(product, s=shape)[:, 2 * reach : 2 * reach + height, 2 * reach : 2 * reach + width]
    return found.reshape(n, c, height, width)


def read_at(images: torch.Tensor, x: torch.Tensor, y: torch.Tensor, border: str) -> torch.Tensor:
    """Bilinear reads of (n, c, h, w) at pixel coordinates x, y (n, h, w).

    `border`: "edge" repeats, "reflect" mirrors the half pixel, "mirror" the edge pixel, "zeros" blends into black, "black" repeats
    the edge but is black where the point itself lies outside (as PIL has it).
    """
    height, width = images.shape[2:]
    if border == "black":
        inside = (x >= -0.5) & (x < width - 0.5) & (y >= -0.5) & (y < height - 0.5)
        return read_at(images, x, y, "edge") * inside[:, None]
    if border == "mirror":
        grid = torch.stack([x * 2 / max(width - 1, 1) - 1, y * 2 / max(height - 1, 1) - 1], dim=-1)
        return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True)
    grid = torch.stack([(x * 2 + 1) / width - 1, (y * 2 + 1) / height - 1], dim=-1)
    padding = {"reflect": "reflection", "zeros": "zeros", "edge": "border"}[border]
    return F.grid_sample(images, grid, padding_mode=padding, align_corners=False)


def pixel_grid(height: int, width: int, device: torch.device, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """The coordinates x and y (h, w) of every pixel."""
    y, x = torch.meshgrid(
        torch.arange(height, device=device, dtype=dtype), torch.arange(width, device=device, dtype=dtype), indexing="ij"
    )
    return x, y
