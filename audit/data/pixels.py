"""Pixel arrays as they are stored: their layout, their range, and files mapped chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from audit.data.files import refused, shown
from audit.errors import DataError
from audit.evidence import Images
from audit.text import printable

AnyArray = npt.NDArray[Any]

_CHECK_BYTES = 1 << 22


class Layout(Enum):
    """The order of axes in which a source stores its images."""

    GREY = "(n, h, w)"
    CHANNELS_FIRST = "(n, c, h, w)"
    CHANNELS_LAST = "(n, h, w, c)"

    def images_first(self, stored: tuple[int, ...]) -> tuple[int, int, int, int]:
        """The shape (N, c, h, w) of an array stored with this shape."""
        if self is Layout.GREY:
            return stored[0], 1, stored[1], stored[2]
        if self is Layout.CHANNELS_LAST:
            return stored[0], stored[3], stored[1], stored[2]
        return stored[0], stored[1], stored[2], stored[3]

    def channels_first(self, rows: AnyArray) -> AnyArray:
        """A view (n, c, h, w) of rows stored like this."""
        if self is Layout.GREY:
            return rows[:, None]
        return rows.transpose(0, 3, 1, 2) if self is Layout.CHANNELS_LAST else rows


def layout_of(shape: tuple[int, ...], where: str) -> Layout:
    """The one layout an array of images of this shape can have; `where` names it in messages.

    Raises:
        DataError: the shape is none of the accepted ones, may be two of them, or has no pixels.
    """
    accepted = "(n, h, w), (n, c, h, w) or (n, h, w, c) with 1 or 3 channels c"
    if len(shape) == 3:
        layout = Layout.GREY
    elif len(shape) != 4:
        raise DataError(f"{where}: images have shape {shape}, but must be {accepted}; reshape them")
    else:
        first, last = shape[1] in (1, 3), shape[3] in (1, 3)
        if first and last:
            raise DataError(f"{where}: images of shape {shape} may have their channels first or last; store them as (n, h, w)")
        if not first and not last:
            raise DataError(f"{where}: images have shape {shape}, but must be {accepted}")
        layout = Layout.CHANNELS_FIRST if first else Layout.CHANNELS_LAST
    if 0 in shape[1:]:
        raise DataError(f"{where}: images of shape {shape[1:]} have no pixels")
    return layout


@dataclass(frozen=True, kw_only=True)
class MappedPixels:
    """Pixels in a file, mapped anew for every chunk: pages of earlier chunks leave the memory, and a copy to a process is small.

    `stamp` is what `file_stamp` said when the data were loaded.
    """

    path: Path
    dtype: np.dtype[Any]
    stored: tuple[int, ...]
    offset: int
    layout: Layout
    stamp: tuple[int, int]
    fortran: bool = False

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(N, c, h, w)."""
        return self.layout.images_first(self.stored)

    def __len__(self) -> int:
        return self.stored[0]

    def __getitem__(self, rows: slice | npt.NDArray[np.int64]) -> AnyArray:
        """A copy of some rows, (n, c, h, w).

        Raises:
            DataError: the file has become unreadable, or was changed since it was loaded.
        """
        if file_stamp(self.path) != self.stamp:
            raise DataError(f"{shown(self.path)} was changed while it was in use; start again, and leave the data alone meanwhile")
        array = map_array(self.path, self.dtype, self.stored, self.offset, fortran=self.fortran)
        return np.array(self.layout.channels_first(array[rows]))


def file_stamp(path: Path) -> tuple[int, int]:
    """Time of the last change in nanoseconds, and size in bytes.

    Raises:
        DataError: the file cannot be looked at.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise refused(path, error) from None
    return status.st_mtime_ns, status.st_size


def map_array(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, *, fortran: bool = False) -> AnyArray:
    """An array in a file, mapped read-only.

    Raises:
        DataError: the file cannot be read, or is shorter than the array.
    """
    try:
        return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
    except OSError as error:
        raise refused(path, error) from None
    except (ValueError, OverflowError) as error:
        raise DataError(f"{shown(path)} is shorter than its header says ({printable(str(error), 120)}); write it anew") from None


def check_pixels(pixels: AnyArray | MappedPixels, where: str) -> None:
    """Refuse pixels that are not uint8, or finite floats in [0, 1]; reads a few megabytes at a time.

    Raises:
        DataError: another type, NaN or infinite values, or values out of range.
    """
    if pixels.dtype == np.uint8:
        return
    if pixels.dtype.kind != "f":
        raise DataError(f"{where}: images are {pixels.dtype}, but must be uint8 or float in [0, 1]; convert them")
    row_bytes = int(np.prod(pixels.shape[1:])) * pixels.dtype.itemsize
    step = max(1, _CHECK_BYTES // row_bytes)
    for start in range(0, len(pixels), step):
        rows = pixels[start : start + step]
        finite = np.isfinite(rows).all(axis=(1, 2, 3))
        if not finite.all():
            raise DataError(f"{where}: image {start + int(finite.argmin())} holds NaN or infinite values; repair or remove it")
        low, high = float(rows.min()), float(rows.max())
        if low < 0 or high > 1:
            hint = "divide by 255" if low >= 0 and high <= 255 else "undo the normalisation: it belongs in the model's input spec"
            raise DataError(f"{where}: pixel values reach from {low:g} to {high:g}, outside [0, 1]; {hint}")


def scaled(pixels: AnyArray) -> Images:
    """Pixels as float32 in [0, 1], contiguous; bytes are divided by 255."""
    if pixels.dtype == np.uint8:
        return np.ascontiguousarray(pixels, dtype=np.float32) / np.float32(255)
    return np.ascontiguousarray(pixels, dtype=np.float32)
