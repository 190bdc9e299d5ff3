"""Images brought to one size, only when asked. The aspect ratio is not kept and nothing is cropped.

8-bit images are resized as 8-bit images, as torchvision does it with Pillow images; others in 32-bit floating point, where the
overshoot of bicubic is cut off at 0 and 1. All methods but `nearest` average over the pixels they shrink (antialiasing).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from PIL import Image

from audit.data.pixels import AnyArray
from audit.errors import InputError
from audit.text import printable

METHODS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
}
MAX_SIDE = 4096
_TEXT = re.compile(r"(?P<height>[0-9]{1,6})x(?P<width>[0-9]{1,6})(?:,(?P<method>[a-z]+))?")


@dataclass(frozen=True, kw_only=True)
class Resize:
    """A size in pixels, 1 to MAX_SIDE each way, and the name of a method."""

    height: int
    width: int
    method: str = "bilinear"

    @classmethod
    def parse(cls, text: str) -> Resize:
        """Read `HxW` or `HxW,METHOD`.

        >>> Resize.parse("32x48,box")
        Resize(height=32, width=48, method='box')

        Raises:
            InputError: it is not of this form, or the size is out of range.
        """
        match = _TEXT.fullmatch(text.strip().lower())
        if match is None or (match["method"] or "bilinear") not in METHODS:
            raise InputError(
                f"resize {printable(text, 60)!r} is not HEIGHTxWIDTH or HEIGHTxWIDTH,METHOD with one of {', '.join(METHODS)}"
            )
        height, width = int(match["height"]), int(match["width"])
        if not (1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
            raise InputError(f"resize {height}x{width} is out of range; each side is 1 to {MAX_SIDE} pixels")
        return cls(height=height, width=width, method=match["method"] or "bilinear")

    def __str__(self) -> str:
        """The words for a data set's source."""
        return f"resized to {self.height} x {self.width} pixels with Pillow's {self.method} filter"

    def apply(self, pixels: AnyArray) -> AnyArray:
        """One image (c, h, w), uint8 or float in [0, 1], at the new size; uint8 stays uint8, the rest is float32."""
        size, method = (self.width, self.height), METHODS[self.method]
        if pixels.dtype == np.uint8:
            stored = np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
            values = np.asarray(Image.fromarray(stored).resize(size, method))
            return values[None] if len(pixels) == 1 else values.transpose(2, 0, 1)
        channels = [Image.fromarray(np.ascontiguousarray(channel, dtype=np.float32)) for channel in pixels]
        resized: AnyArray = np.stack([np.asarray(channel.resize(size, method)) for channel in channels])
        return resized.clip(0, 1)
