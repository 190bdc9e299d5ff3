"""Images held as one array, and the `.npz` files they come from. A `.npz` is never unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from audit.data.files import MAX_UNPACKED_BYTES, refused, sha256_of_file, shown
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import printable, redact

AnyArray = npt.NDArray[Any]

# Keys of images and labels, in the order they are looked for.
TEST_KEYS = (("images", "labels"), ("x", "y"), ("x_test", "y_test"))
TRAIN_KEYS = (("x_train", "y_train"),)
# A larger label is not a class index; names are made for every index up to the largest.
MAX_CLASSES = 100_000
_CHECK_ROWS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayDataset:
    """A data set whose pixels (N, c, h, w), uint8 or float in [0, 1], are in memory or mapped from a file."""

    reference: str
    source: str
    digest: str
    ids: Strings
    labels: Ints
    class_names: tuple[str, ...]
    pixels: AnyArray

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1]."""
        rows = self.pixels[np.asarray(indices, dtype=np.int64)]
        if rows.dtype == np.uint8:
            return rows.astype(np.float32) / np.float32(255)
        return np.ascontiguousarray(rows, dtype=np.float32)


def checked_labels(labels: AnyArray, examples: int, where: str) -> Ints:
    """Labels as class indices (N,); `where` names them in messages.

    Raises:
        DataError: not integers, negative, implausibly large, or not one per example.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        hint = "; for one-hot rows store labels.argmax(axis=1)" if labels.ndim == 2 else ""
        raise DataError(f"{where}: labels have shape {labels.shape}, but must be one class index per image{hint}")
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where}: labels are {labels.dtype}, but must be integer class indices; store labels.astype('int64')")
    if len(labels) != examples:
        raise DataError(f"{where}: there are {examples} images but {len(labels)} labels; they must come in pairs")
    if examples == 0:
        raise DataError(f"{where}: there are no examples; an audit needs at least one image with its label")
    low, high = int(labels.min()), int(labels.max())
    if low < 0:
        raise DataError(f"{where}: label {low} is negative; labels are class indices from 0 on")
    if high >= MAX_CLASSES:
        raise DataError(f"{where}: label {high} is no class index (at most {MAX_CLASSES - 1}); labels count classes from 0 on")
    return labels.astype(np.int64)


def numbered_names(labels: Ints) -> tuple[str, ...]:
    """The names "0", "1", ... up to the largest label, for sources that have none."""
    return tuple(str(index) for index in range(int(labels.max()) + 1))


def load_npz(path: Path, reference: str, *, train: bool = False) -> ArrayDataset:
    """Read a `.npz` with the keys images/labels, x/y or x_test/y_test (for `train`: x_train/y_train).

    Images are uint8, or float in [0, 1], of shape (n, h, w), (n, c, h, w) or (n, h, w, c) with c 1 or 3. Ids are the row numbers.

    Raises:
        DataError: the file is not such an archive, or its content does not fit.
    """
    digest = sha256_of_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            image_key, label_key = _keys(path, members, TRAIN_KEYS if train else TEST_KEYS)
            pixels = _member(archive, members[image_key], path)
            labels = _member(archive, members[label_key], path)
    except OSError as error:
        raise refused(path, error) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(
            f"{shown(path)} is not a readable .npz archive ({printable(str(error))}); write it anew with np.savez"
        ) from None
    where = shown(path)
    pixels = _channels_first(pixels, where)
    checked = checked_labels(labels, len(pixels), where)
    _check_pixels(pixels, where)
    return ArrayDataset(
        reference=redact(reference),
        source=f"NumPy archive {printable(path.name)}, arrays {image_key} and {label_key}",
        digest=digest,
        ids=np.array([str(index) for index in range(len(pixels))]),
        labels=checked,
        class_names=numbered_names(checked),
        pixels=pixels,
    )


def _keys(path: Path, members: dict[str, zipfile.ZipInfo], accepted: Sequence[tuple[str, str]]) -> tuple[str, str]:
    for pair in accepted:
        if pair[0] in members and pair[1] in members:
            return pair
    found = ", ".join(printable(name, 40) for name in list(members)[:8]) or "nothing"
    wanted = " or ".join("/".join(pair) for pair in accepted)
    raise DataError(f"{shown(path)} holds {found}, but an audit looks for the arrays {wanted}")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> AnyArray:
    """One array of the archive; its header is checked against the stored size before anything is allocated."""
    where = f"{shown(path)}, array {printable(info.filename, 40)}"
    try:
        with archive.open(info) as stream:
            shape, fortran, dtype = _npy_header(stream)
            if dtype.hasobject:
                raise DataError(f"{where} holds pickled objects, which are never loaded as they can run code; store numbers")
            expected = math.prod(shape) * dtype.itemsize
            if min(shape, default=0) < 0 or expected > info.file_size:
                raise DataError(f"{where} claims shape {shape}, more than the file holds; write it anew with np.savez")
            if expected > MAX_UNPACKED_BYTES:
                raise DataError(
                    f"{where} unpacks to {expected / 2**30:.1f} GiB, more than the {MAX_UNPACKED_BYTES >> 30} GiB read at once; "
                    "store fewer images, or a folder of class folders"
                )
            data = bytearray()
            while len(data) < expected and (block := stream.read(min(1 << 20, expected - len(data)))):
                data += block
    except ValueError as error:
        raise DataError(f"{where} is not a NumPy array ({printable(str(error), 120)}); write it anew with np.savez") from None
    if len(data) < expected:
        raise DataError(f"{where} is truncated: {len(data)} of {expected} bytes; write it anew with np.savez")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"format version {version} is unknown")


def _channels_first(pixels: AnyArray, where: str) -> AnyArray:
    """A view (N, c, h, w) of one of the three accepted shapes."""
    accepted = "(n, h, w), (n, c, h, w) or (n, h, w, c) with 1 or 3 channels c"
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.ndim != 4:
        raise DataError(f"{where}: images have shape {pixels.shape}, but must be {accepted}; reshape them")
    else:
        first, last = pixels.shape[1] in (1, 3), pixels.shape[3] in (1, 3)
        if first and last:
            raise DataError(
                f"{where}: images of shape {pixels.shape} may have their channels first or last; store them as (n, h, w)"
            )
        if not first and not last:
            raise DataError(f"{where}: images have shape {pixels.shape}, but must be {accepted}")
        pixels = pixels if first else pixels.transpose(0, 3, 1, 2)
    if 0 in pixels.shape[1:]:
        raise DataError(f"{where}: images of shape {pixels.shape[1:]} have no pixels")
    return pixels


def _check_pixels(pixels: AnyArray, where: str) -> None:
    if pixels.dtype == np.uint8:
        return
    if pixels.dtype.kind != "f":
        raise DataError(f"{where}: images are {pixels.dtype}, but must be uint8 or float in [0, 1]; convert them")
    for start in range(0, len(pixels), _CHECK_ROWS):
        rows = pixels[start : start + _CHECK_ROWS]
        finite = np.isfinite(rows).all(axis=(1, 2, 3))
        if not finite.all():
            raise DataError(f"{where}: image {start + int(finite.argmin())} holds NaN or infinite values; repair or remove it")
        low, high = float(rows.min()), float(rows.max())
        if low < 0 or high > 1:
            hint = "divide by 255" if low >= 0 and high <= 255 else "undo the normalisation: it belongs in the model's input spec"
            raise DataError(f"{where}: pixel values reach from {low:g} to {high:g}, outside [0, 1]; {hint}")
