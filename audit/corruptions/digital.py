"""Contrast, brightness, saturation, elastic transform, pixelation and JPEG compression."""

from __future__ import annotations

import io
from collections.abc import Callable

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


def pixelate(images: Originals, row: Row) -> torch.Tensor:
    """Shrunk by averages and enlarged by the nearest pixel, by PIL on the CPU: as the source, and faster than sums of rows."""
    _, height, width = images.shape
    small = max(1, int(width * row[0])), max(1, int(height * row[0]))

    def coarse(picture: Image.Image) -> Image.Image:
        return picture.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.NEAREST)

    return _by_pil(images.levels, coarse)


def jpeg_compression(images: Originals, row: Row) -> torch.Tensor:
    """Written as JPEG at the given quality and read again, by PIL on the CPU."""

    def compressed(picture: Image.Image) -> Image.Image:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(row[0]))
        return Image.open(file)

    return _by_pil(images.levels, compressed)


def _by_pil(levels: torch.Tensor, change: Callable[[Image.Image], Image.Image]) -> torch.Tensor:
    """Each image (c, h, w) through `change`. PIL merges and splits planes faster than numpy transposes them."""
    given = levels.cpu().numpy()
    found = np.empty_like(given)
    for row, image in enumerate(given):
        planes = [Image.fromarray(plane) for plane in image]
        with change(planes[0] if len(planes) == 1 else Image.merge("RGB", planes)) as changed:
            for place, plane in enumerate(changed.split()):
                found[row, place] = plane
    return torch.from_numpy(found).to(levels.device)
