"""The table of the 19 kinds, and how a batch of images goes through one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from audit.corruptions import blur, digital, noise, sizes, spatter, weather
from audit.corruptions.draws import Draws
from audit.corruptions.filters import in_8_bits
from audit.corruptions.originals import Corrupt, Originals
from audit.corruptions.parameters import KINDS as NAMES
from audit.corruptions.parameters import SEVERITIES

KINDS: Mapping[str, Corrupt] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise,
        noise.shot_noise,
        noise.impulse_noise,
        blur.defocus_blur,
        blur.glass_blur,
        blur.motion_blur,
        blur.zoom_blur,
        weather.snow,
        weather.frost,
        weather.fog,
        digital.brightness,
        digital.contrast,
        digital.elastic_transform,
        digital.pixelate,
        digital.jpeg_compression,
        noise.speckle_noise,
        blur.gaussian_blur,
        spatter.spatter,
        digital.saturate,
    )
}
assert tuple(KINDS) == NAMES, "every published kind has a function of its name, in the published order"

# Images at once, in values: what the steps of a corruption hold of them stays in the processor's cache.
_VALUES_AT_ONCE = 1 << 17


def levels_of(images: torch.Tensor) -> torch.Tensor:
    """Images (n, c, h, w) in [0, 1] as the 8-bit images that corruptions start from: the nearest grey levels, uint8."""
    return images.clamp(0, 1).mul(255).round_().to(torch.uint8)


def corrupted(
    levels: torch.Tensor, kind: str, ids: Sequence[str], seed: int, severities: Sequence[int] = SEVERITIES
) -> Iterator[torch.Tensor]:
    """The images under one kind of corruption, for one severity after the other.

    Args:
        levels: (n, c, h, w) uint8, c in {1, 3} in the order RGB.
        kind: a key of `KINDS`.
        ids: one id per image, to which its random numbers belong.
        seed: of the random numbers.
        severities: from 1 to 5.

    Yields:
        (n, c, h, w) uint8.

    Raises:
        ValueError: the kind changes nothing about such images, or there is no such severity.
    """
    n, channels, height, width = levels.shape
    because = sizes.not_applicable(kind, channels)
    if because is not None or not set(severities) <= set(SEVERITIES):
        raise ValueError(because or f"severities are {SEVERITIES[0]} to {SEVERITIES[-1]}, not {tuple(severities)}")
    step = max(1, _VALUES_AT_ONCE // (channels * height * width))
    parts = [
        Originals(levels=part, unit=part.float() / 255, draws=Draws(seed, ids[start : start + step], kind, levels.device))
        for start in range(0, n, step)
        for part in [levels[start : start + step]]
    ]
    for severity in severities:
        row = sizes.parameters(kind, severity, height, width)
        with torch.no_grad():
            yield torch.cat([in_8_bits(KINDS[kind](part, row)) for part in parts]) if parts else levels.clone()
