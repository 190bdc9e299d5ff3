"""Images held as one array, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from audit.data.pixels import AnyArray, MappedPixels, scaled
from audit.data.resize import Resize
from audit.evidence import Images, Ints, Strings


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayDataset:
    """A data set whose pixels (N, c, h, w), uint8 or float in [0, 1], are in memory or mapped from a file."""

    reference: str
    source: str
    digest: str
    ids: Strings
    labels: Ints
    class_names: tuple[str, ...]
    pixels: AnyArray | MappedPixels
    resize: Resize | None = None
    slices: Mapping[str, Strings] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""
        _, channels, height, width = self.pixels.shape
        return (channels, height, width) if self.resize is None else (channels, self.resize.height, self.resize.width)

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: the file behind the pixels has become unreadable.
        """
        rows = self.pixels[np.asarray(indices, dtype=np.int64)]
        if self.resize is None:
            return scaled(rows)
        images = np.empty((len(rows), *self.image_shape), dtype=np.float32)
        for row, pixels in enumerate(rows):
            images[row] = scaled(self.resize.apply(pixels))
        return images
