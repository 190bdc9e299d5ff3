"""Contrast, brightness, saturation, elastic transform, pixelation and JPEG compression."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
from PIL import Image

from audit.corruptions.filters import pixel_grid, read_at, smooth
from audit.corruptions.originals import Originals
from audit.corruptions.parameters import Row

_TINY = 1e-9


def contrast(images: Originals, row: Row) -> torch.Tensor:
    """Towards the mean of each channel."""
    mean = images.unit.mean(dim=(2, 3), keepdim=True)
    return (images.unit - mean) * row[0] + mean


def brightness(images: Originals, row: Row) -> torch.Tensor:
    """V of HSV raised."""
    return brightened(images.unit, row[0])


def brightened(images: torch.Tensor, added: float) -> torch.Tensor:
    """V of HSV raised or lowered, in [0, 1]; the same as scaling all channels, and black becomes grey."""
    value = images.amax(dim=1, keepdim=True)
    raised = (value + added).clamp(0, 1)
    return torch.where(value > 0, images * (raised / value.clamp(min=_TINY)), raised)


def saturate(images: Originals, row: Row) -> torch.Tensor:
    """S of HSV scaled and raised; what is grey has the hue of red."""
    unit = images.unit
    value = unit.amax(dim=1, keepdim=True)
    spread = value - unit.amin(dim=1, keepdim=True)
    saturation = spread / value.clamp(min=_TINY)
    changed = (saturation * row[0] + row[1]).clamp(0, 1)
    reddish = torch.cat([value, value * (1 - changed), value * (1 - changed)], dim=1)
    return torch.where(spread > 0, value - (value - unit) * (changed / saturation.clamp(min=_TINY)), reddish)


def elastic_transform(images: Originals, row: Row) -> torch.Tensor:
    """An affine map that moves three points, then a smooth random displacement."""
    gain, sigma, moved, reach = row
    n, (_, height, width) = len(images.unit), images.shape
    device, found = images.unit.device, images.unit
    x, y = pixel_grid(height, width, device)
    if moved > 0:
        side, across, down = min(height, width) // 3, width // 2, height // 2
        corners = torch.tensor(
            [[across + side, down + side], [across + side, down - side], [across - side, down - side]], dtype=torch.float64
        ).expand(n, 3, 2)
        shifts = images.draws.uniform("corners", 3, 2).cpu().double() * 2 - 1
        arrived = corners + shifts * moved
        # From where it arrives to where it came from, (n, 3, 2).
        back = torch.linalg.solve(torch.cat([arrived, torch.ones(n, 3, 1, dtype=torch.float64)], dim=2), corners)
        ax, ay = (back[:, :, axis].float().to(device)[:, :, None, None] for axis in (0, 1))
        found = read_at(found, x * ax[:, 0] + y * ax[:, 1] + ax[:, 2], x * ay[:, 0] + y * ay[:, 1] + ay[:, 2], "mirror")
    if gain == 0:
        return found
    field = (images.draws.uniform("field", 2, height, width) * 2 - 1) * reach
    if sigma > 0:
        field = smooth(field, sigma, border="reflect", truncate=3.0)
    field = field * gain
    return read_at(found, x + field[:, 0], y + field[:, 1], "reflect")


@lru_cache(maxsize=256)
def _boxes(size: int, small: int) -> tuple[torch.Tensor, torch.Tensor]:
    """First pixel and number of pixels (small,) that PIL's box filter averages for each pixel of the smaller line."""
    scale = size / small
    half = 0.5 * max(scale, 1.0)
    first, count = [], []
    for place in range(small):
        centre = (place + 0.5) * scale
        low, high = max(int(centre - half + 0.5), 0), min(int(centre + half + 0.5), size)
        inside = [pixel for pixel in range(low, high) if -0.5 < (pixel - centre + 0.5) / max(scale, 1.0) <= 0.5]
        inside = inside or [min(int(centre), size - 1)]
        first.append(inside[0])
        count.append(len(inside))
    return torch.tensor(first), torch.tensor(count)


def _shrunk(values: torch.Tensor, small: int) -> torch.Tensor:
    """The rows of (n, c, h, w) averaged down to `small` rows of whole grey levels."""
    first, count = (column.to(values.device) for column in _boxes(values.shape[2], small))
    total = values.index_select(2, first)
    for step in range(1, int(count.max())):
        more = step < count
        total += values.index_select(2, torch.where(more, first + step, first)) * more[:, None]
    return total.div_(count[:, None]).add_(0.5 + 1e-4).floor_()


def pixelate(images: Originals, row: Row) -> torch.Tensor:
    """Shrunk by averages, columns before rows, and enlarged by the nearest pixel; 8 bits in between."""
    _, height, width = images.shape
    rows, columns = max(1, int(height * row[0])), max(1, int(width * row[0]))
    across = _shrunk(images.levels.transpose(2, 3).float().contiguous(), columns)
    values = _shrunk(across.transpose(2, 3).contiguous(), rows).div_(255)

    def nearest(size: int, small: int) -> torch.Tensor:
        return ((torch.arange(size, device=values.device) + 0.5) * small / size).long().clamp(max=small - 1)

    return values.index_select(3, nearest(width, columns)).index_select(2, nearest(height, rows))


def jpeg_compression(images: Originals, row: Row) -> torch.Tensor:
    """Written as JPEG at the given quality and read again, by PIL on the CPU."""
    found = []
    for image in images.levels.cpu().numpy():
        file = io.BytesIO()
        Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0)).save(file, "JPEG", quality=int(row[0]))
        with Image.open(file) as compressed:
            pixels = np.asarray(compressed)
        found.append(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    return torch.from_numpy(np.stack(found)).to(images.unit.device).float() / 255
