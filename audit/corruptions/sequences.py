"""Perturbation sequences: 31 frames in which an image changes a little at a time.

Frames t = 0..30 of Hendrycks & Dietterich 2019; two parameter tables are published, for 224 and 32 pixels, and lengths scale with
the shorter side in between. Differs from the source in length where it has others than 31 frames (motion blur at 32 pixels 21,
translate 16 and 41). A frame belongs to its image's pixels and id, the seed, and t: the same in any batch and process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from audit.corruptions.digital import brightened
from audit.corruptions.draws import Draws
from audit.corruptions.families import FAMILIES, FRAMES
from audit.corruptions.filters import in_8_bits, pixel_grid, read_at, streak
from audit.corruptions.noise import poisson
from audit.corruptions.weather import flakes, snowed

_MIDDLE = (FRAMES - 1) // 2
# Up to this side an image takes the table of 32 pixels.
_LARGEST_SMALL = 85
# Below this side a shift of 15 pixels leaves nothing of an image: the steps become parts of a pixel.
_FEWEST_TRANSLATED = 20
# Makes the final cut to 8 bits a rounding.
_HALF_LEVEL = 0.5 / 255


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Published parameters: noise; streaks of motion and snow as half their length and sigma; steps per frame."""

    noise: float
    photons: float
    motion: tuple[float, float]
    first_angle: float
    angle_step: float
    flake: float
    flake_streak: tuple[float, float]
    brighter: float
    tilt: float
    scale: tuple[float, float]


_LARGE = _Table(
    noise=0.03,
    photons=300,
    motion=(10, 3.0),
    first_angle=-120,
    angle_step=4,
    flake=3.0,
    flake_streak=(14, 4.0),
    brighter=0.02,
    tilt=1.0,
    scale=(0.40, 0.025),
)
_SMALL = _Table(
    noise=0.02,
    photons=700,
    motion=(6, 1.8),
    first_angle=-180,
    angle_step=6,
    flake=2.0,
    flake_streak=(10, 2.0),
    brighter=0.015,
    tilt=0.75,
    scale=(0.70, 0.02),
)


@dataclass(frozen=True, kw_only=True)
class _Start:
    """The first image of each sequence, and what its frames are made with; `scale` is the side over the table's."""

    levels: torch.Tensor
    unit: torch.Tensor
    ids: Sequence[str]
    seed: int
    family: str
    table: _Table
    scale: float

    def draws(self, frame: int | None = None) -> Draws:
        """The random numbers of the whole sequence, or of one frame."""
        name = f"sequence {self.family}" + ("" if frame is None else f" {frame}")
        return Draws(self.seed, self.ids, name, self.unit.device)


def _gaussian_noise(start: _Start) -> Iterator[torch.Tensor]:
    yield start.unit
    for t in range(1, FRAMES):
        yield start.unit + start.table.noise * start.draws(t).normal("values", *start.unit.shape[1:])


def _shot_noise(start: _Start) -> Iterator[torch.Tensor]:
    yield start.unit
    photons = start.table.photons
    for t in range(1, FRAMES):
        yield poisson(start.levels, start.draws(t).uniform("values", *start.unit.shape[1:]), photons).float() / photons


def _motion_blur(start: _Start) -> Iterator[torch.Tensor]:
    reach, sigma = start.table.motion
    for t in range(FRAMES):
        angle = start.table.first_angle + start.table.angle_step * t
        yield streak(start.unit, max(1, math.ceil(reach * start.scale)), sigma * start.scale, [angle] * len(start.unit))


def _zoom_blur(start: _Start) -> Iterator[torch.Tensor]:
    total = start.unit.clone()
    yield total
    for t in range(1, FRAMES):
        total += (_resized(start.unit, 1 + 0.004 * t) * 255).round() / 255
        yield total / (t + 1)


def _snow(start: _Start) -> Iterator[torch.Tensor]:
    shape = (start.unit.shape[1], start.unit.shape[2], start.unit.shape[3])
    layer = flakes(start.draws(), shape, 0.05, 0.3, max(1.0, start.table.flake * start.scale), 0.5)
    reach, sigma = start.table.flake_streak
    for t in range(FRAMES):
        angles = [4.0 * t - 150] * len(start.unit)
        yield snowed(start.unit, layer, max(1, math.ceil(reach * start.scale)), sigma * start.scale, angles, 0.85)


def _brightness(start: _Start) -> Iterator[torch.Tensor]:
    for t in range(FRAMES):
        yield brightened(start.unit, (t - _MIDDLE) * start.table.brighter)


def _translate(start: _Start) -> Iterator[torch.Tensor]:
    height, width = start.unit.shape[2:]
    x, y = pixel_grid(height, width, start.unit.device)
    step = start.scale if min(height, width) < _FEWEST_TRANSLATED else max(1, round(start.scale))
    for t in range(FRAMES):
        yield _read(start.unit, x - (t - _MIDDLE) * step, y, "black")


def _rotate(start: _Start) -> Iterator[torch.Tensor]:
    x, y, middle_x, middle_y = _centred(start.unit)
    for t in range(FRAMES):
        angle = math.radians(t - _MIDDLE)
        sine, cosine = math.sin(angle), math.cos(angle)
        yield _read(start.unit, cosine * x + sine * y + middle_x, cosine * y - sine * x + middle_y, "black")


def _tilt(start: _Start) -> Iterator[torch.Tensor]:
    height, width = start.unit.shape[2:]
    x, y = pixel_grid(height, width, start.unit.device, torch.float64)
    points = torch.stack([x, y, torch.ones_like(x)], dim=-1)
    for t in range(FRAMES):
        seen = points @ torch.linalg.inv(_perspective(height, width, start.table.tilt * (t - _MIDDLE))).T.to(points)
        yield _read(start.unit, seen[..., 0] / seen[..., 2], seen[..., 1] / seen[..., 2], "zeros") + _HALF_LEVEL


def _scale(start: _Start) -> Iterator[torch.Tensor]:
    first, step = start.table.scale
    for t in range(FRAMES):
        yield _resized(start.unit, first + step * t)


def _perspective(height: int, width: int, degrees: float) -> torch.Tensor:
    """The homography (3, 3) float64 of an image turned about both its axes, seen from as far as its diagonal is long."""
    far, angle = math.hypot(width, height), math.radians(degrees)
    sine, cosine = math.sin(angle), math.cos(angle)
    to_space = [[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]]
    about_x = [[1, 0, 0, 0], [0, cosine, -sine, 0], [0, sine, cosine, 0], [0, 0, 0, 1]]
    about_y = [[cosine, 0, -sine, 0], [0, 1, 0, 0], [sine, 0, cosine, 0], [0, 0, 0, 1]]
    away = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, far], [0, 0, 0, 1]]
    to_image = [[far, 0, width / 2, 0], [0, far, height / 2, 0], [0, 0, 1, 0]]
    steps = [torch.tensor(matrix, dtype=torch.float64) for matrix in (to_image, away, about_x, about_y, to_space)]
    whole: torch.Tensor = torch.linalg.multi_dot(steps)
    return whole


def _centred(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float, float]:
    """Coordinates (h, w) from the middle of the image, and where that is."""
    height, width = images.shape[2:]
    x, y = pixel_grid(height, width, images.device, torch.float64)
    return x - (width - 1) / 2, y - (height - 1) / 2, (width - 1) / 2, (height - 1) / 2


def _resized(images: torch.Tensor, factor: float) -> torch.Tensor:
    x, y, middle_x, middle_y = _centred(images)
    return _read(images, x / factor + middle_x, y / factor + middle_y, "black")


def _read(images: torch.Tensor, x: torch.Tensor, y: torch.Tensor, border: str) -> torch.Tensor:
    """Every image read at the same coordinates (h, w)."""
    return read_at(images, x.float().expand(len(images), -1, -1), y.float().expand(len(images), -1, -1), border)


_MAKERS: Mapping[str, Callable[[_Start], Iterator[torch.Tensor]]] = dict(
    zip(
        FAMILIES,
        (_gaussian_noise, _shot_noise, _motion_blur, _zoom_blur, _snow, _brightness, _translate, _rotate, _tilt, _scale),
        strict=True,
    )
)


def frames(levels: torch.Tensor, family: str, ids: Sequence[str], seed: int) -> Iterator[torch.Tensor]:
    """The 31 frames of one family, each as a batch.

    Args:
        levels: (n, c, h, w) uint8, c in {1, 3} in the order RGB.
        family: one of `FAMILIES`.
        ids: one id per image, to which its random numbers belong.
        seed: of the random numbers.

    Yields:
        (n, c, h, w) uint8; outside the image all is black.
    """
    side = min(levels.shape[2:])
    small = side <= _LARGEST_SMALL
    start = _Start(
        levels=levels,
        unit=levels.float() / 255,
        ids=ids,
        seed=seed,
        family=family,
        table=_SMALL if small else _LARGE,
        scale=side / (32 if small else 224),
    )
    with torch.no_grad():
        for frame in _MAKERS[family](start):
            yield in_8_bits(frame)
