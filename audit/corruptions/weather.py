"""Snow, frost and fog."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from audit.corruptions.draws import Draws
from audit.corruptions.filters import grey, streak
from audit.corruptions.originals import Originals
from audit.corruptions.parameters import Row

# Mean colours of five kinds of ice, the deviation within an image and between images: (R, G, B, within, between).
_ICE = ((78, 149, 166, 16, 10), (201, 205, 214, 20, 7), (201, 205, 214, 20, 7), (138, 153, 165, 27, 7), (112, 123, 135, 36, 13))
_LARGEST_CELL = 64.0
_MOST_OCTAVES = 8
# A uniform draw on [-1, 1] times this has variance 1.
_UNIT_VARIANCE = math.sqrt(3)


def snow(images: Originals, row: Row) -> torch.Tensor:
    """Blown flakes over a whitened image."""
    mean, deviation, flake, threshold, reach, sigma, kept = row
    angles = (images.draws.uniform("angle", 1)[:, 0] * 90 - 135).tolist()
    layer = flakes(images.draws, images.shape, mean, deviation, flake, threshold)
    return snowed(images.unit, layer, int(reach), sigma, angles, kept)


def flakes(
    draws: Draws, shape: tuple[int, int, int], mean: float, deviation: float, flake: float, threshold: float
) -> torch.Tensor:
    """A layer (n, 1, h, w) of enlarged noise above a threshold, in whole grey levels."""
    _, height, width = shape
    noise = mean + deviation * draws.normal("flakes", 1, height, width)
    crop = [math.ceil(side / flake) for side in (height, width)]
    enlarged = [round(side * flake) for side in crop]
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    noise = noise[:, :, top : top + crop[0], left : left + crop[1]]
    noise = F.interpolate(noise, size=(enlarged[0], enlarged[1]), mode="bilinear", align_corners=True)
    top, left = (enlarged[0] - height) // 2, (enlarged[1] - width) // 2
    noise = noise[:, :, top : top + height, left : left + width]
    return (noise.masked_fill(noise < threshold, 0).clamp(0, 1) * 255 + 1e-3).floor() / 255


def snowed(images: torch.Tensor, layer: torch.Tensor, reach: int, sigma: float, angles: list[float], kept: float) -> torch.Tensor:
    """Images (n, c, h, w) in [0, 1] whitened by 1 - kept, under a layer of flakes blown along the angles, twice."""
    blown = (streak(layer, reach, sigma, angles) * 255).round() / 255
    whitened = kept * images + (1 - kept) * torch.maximum(images, grey(images) * 1.5 + 0.5)
    return whitened + blown + blown.flip(2, 3)


def frost(images: Originals, row: Row) -> torch.Tensor:
    """The image and a layer of procedural ice. Differs from the source, which adds one of five photographs."""
    image, ice, grain = row
    _, height, width = images.shape
    layer = ice_layer(images.draws, height, width, grain)
    return image * images.unit + ice * (grey(layer) if images.shape[0] == 1 else layer)


def ice_layer(draws: Draws, height: int, width: int, grain: float) -> torch.Tensor:
    """Ice (n, 3, h, w) in [0, 1]: smooth noise at halving scales, needles in two directions, and a slow drift of the colour.

    The finer the grain, the more needles and contrast: tuned so that two classifiers err as often as under the photographs.
    """
    fine = min(1.0, max(0.0, math.log(1 / grain) / math.log(5)))
    needles, contrast = 0.5 + 1.5 * fine, 0.8 + 0.6 * fine
    crystals, octaves = _octaves(draws, height, width, grain)
    reach = max(2, round(20 * grain))
    seeds = (draws.normal("needles", 1, height, width) - 1.6).clamp(min=0)
    angles = draws.uniform("directions", 2) * 180
    grown = streak(seeds, reach, 0.8 * reach, angles[:, 0].tolist()) + streak(
        seeds, reach, 0.8 * reach, (angles[:, 1] + 180).tolist()
    )
    spread = grown.std(dim=(1, 2, 3), keepdim=True).clamp(min=1e-6)
    grown = (grown - grown.mean(dim=(1, 2, 3), keepdim=True)) / spread
    texture = (crystals + needles * math.sqrt(octaves) * grown) / math.sqrt(octaves * (1 + needles**2))
    drift = F.interpolate(draws.normal("drift", 3, 4, 4), size=(height, width), mode="bicubic", align_corners=False) * 0.6
    chosen = draws.uniform("colour", 2)
    colours = torch.tensor(_ICE, dtype=torch.float32, device=texture.device)[(chosen[:, 0] * 5).long().clamp(max=4)]
    mean, within, between = colours[:, :3, None, None], colours[:, 3, None, None, None], colours[:, 4, None, None, None]
    shade = (chosen[:, 1] * 2 - 1)[:, None, None, None] * _UNIT_VARIANCE * between
    return ((mean + shade + contrast * (texture + drift) * within) / 255).clamp(0, 1)


def _octaves(draws: Draws, height: int, width: int, grain: float) -> tuple[torch.Tensor, float]:
    """Noise (n, 1, h, w) of equal variance at every scale from large cells to single pixels, summed, and how many there are."""
    total, count, cell = torch.zeros(1, 1, height, width), 0, _LARGEST_CELL * grain
    while cell >= 0.5 and count < _MOST_OCTAVES:
        step = max(cell, 1.0)
        rows, columns = math.ceil(height / step) + 3, math.ceil(width / step) + 3
        noise = draws.normal(f"octave {count}", 1, rows, columns)
        size = max(round(rows * step), height), max(round(columns * step), width)
        noise = F.interpolate(noise, size=size, mode="bilinear", align_corners=False)
        top, left = (size[0] - height) // 2, (size[1] - width) // 2
        # Interpolation takes a third of the deviation.
        weight = 1.5 if step > 1.5 else 1.0
        total = total.to(noise) + weight * noise[:, :, top : top + height, left : left + width]
        cell /= 2
        count += 1
    return total, float(max(count, 1))


def fog(images: Originals, row: Row) -> torch.Tensor:
    """A plasma added, and the image's range kept."""
    amount, decay = row
    _, height, width = images.shape
    brightest = images.unit.amax(dim=(1, 2, 3), keepdim=True)
    size = 1 << (max(height, width) - 1).bit_length()
    cloud = plasma(images.draws, size, decay)[:, None, :height, :width]
    return (images.unit + amount * cloud) * brightest / (brightest + amount)


def plasma(draws: Draws, size: int, decay: float) -> torch.Tensor:
    """Fractal noise (n, size, size) in [0, 1] by the diamond-square algorithm on a torus; `size` is a power of two."""
    corner = draws.uniform("0", 1, 1)
    field = corner.new_zeros(len(corner), size, size)
    step, wobble = size, 100.0

    def around(total: torch.Tensor, place: str) -> torch.Tensor:
        _, rows, columns = total.shape
        return total / 4 + wobble * wobble * (draws.uniform(f"{place} {step}", rows, columns) * 2 - 1)

    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        field[:, half::step, half::step] = around(pairs + pairs.roll(-1, 2), "centres")
        centres, corners = field[:, half::step, half::step], field[:, ::step, ::step]
        field[:, ::step, half::step] = around(centres + centres.roll(1, 1) + corners + corners.roll(-1, 2), "rows")
        field[:, half::step, ::step] = around(centres + centres.roll(1, 2) + corners + corners.roll(-1, 1), "columns")
        step, wobble = half, wobble / decay
    field -= field.amin(dim=(1, 2), keepdim=True)
    return field / field.amax(dim=(1, 2), keepdim=True).clamp(min=1e-30)
