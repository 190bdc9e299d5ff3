"""NumPy `.npz` archives and the header of the arrays in them. Nothing is ever unpickled.

Images stored as they are (`np.savez`) are mapped and read lazily; compressed ones are unpacked into memory.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from audit.data.arrays import ArrayDataset
from audit.data.files import BLOCK_BYTES, MAX_UNPACKED_BYTES, refused, sha256_of_file, shown
from audit.data.labels import checked_labels, numbered_names
from audit.data.pixels import AnyArray, MappedPixels, check_pixels, file_stamp, layout_of
from audit.errors import DataError
from audit.text import printable, redact

# Keys of images and labels, in the order they are looked for.
TEST_KEYS = (("images", "labels"), ("x", "y"), ("x_test", "y_test"))
TRAIN_KEYS = (("x_train", "y_train"),)
# Where the lengths of name and extra field are in the header before a zip member; the data come after those two.
_LENGTHS_AT = 26


def load_npz(path: Path, reference: str, *, train: bool = False) -> ArrayDataset:
    """Read a `.npz` with the keys images/labels, x/y or x_test/y_test (for `train`: x_train/y_train).

    Images are uint8, or float in [0, 1], of shape (n, h, w), (n, c, h, w) or (n, h, w, c) with c 1 or 3. Ids are the row numbers.

    Raises:
        DataError: the file is not such an archive, or its content does not fit.
    """
    stamp = file_stamp(path)
    digest = sha256_of_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            image_key, label_key = _keys(path, members, TRAIN_KEYS if train else TEST_KEYS)
            pixels = _images(archive, members[image_key], path, stamp)
            labels = _member(archive, members[label_key], path)
    except OSError as error:
        raise refused(path, error) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DataError(
            f"{shown(path)} is not a readable .npz archive ({printable(str(error))}); write it anew with np.savez"
        ) from None
    where = shown(path)
    checked = checked_labels(labels, len(pixels), where)
    check_pixels(pixels, where)
    return ArrayDataset(
        reference=redact(reference),
        source=f"NumPy archive {printable(path.name)}, arrays {image_key} and {label_key}",
        digest=digest,
        ids=np.array([str(index) for index in range(len(pixels))]),
        labels=checked,
        class_names=numbered_names(checked),
        pixels=pixels,
    )


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and type, as the header of a `.npy` stream claims them.

    Raises:
        ValueError: it is no such header, or of an unknown version.
    """
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"format version {version} is unknown")


def _keys(path: Path, members: dict[str, zipfile.ZipInfo], accepted: Sequence[tuple[str, str]]) -> tuple[str, str]:
    for pair in accepted:
        if pair[0] in members and pair[1] in members:
            return pair
    found = ", ".join(printable(name, 40) for name in list(members)[:8]) or "nothing"
    wanted = " or ".join("/".join(pair) for pair in accepted)
    raise DataError(f"{shown(path)} holds {found}, but an audit looks for the arrays {wanted}")


def _images(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, stamp: tuple[int, int]) -> AnyArray | MappedPixels:
    """The images (N, c, h, w), mapped if they are stored as they are; the archive's checksum is verified in either case."""
    if info.compress_type != zipfile.ZIP_STORED:
        pixels = _member(archive, info, path)
        return layout_of(pixels.shape, shown(path)).channels_first(pixels)
    shape, fortran, dtype, header_bytes = _header(archive, info, path)
    layout = layout_of(shape, shown(path))
    with archive.open(info) as stream:
        while stream.read(BLOCK_BYTES):  # to the end, where the checksum is compared
            pass
    with path.open("rb") as file:
        file.seek(info.header_offset + _LENGTHS_AT)
        name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
    offset = info.header_offset + _LENGTHS_AT + 4 + name_bytes + extra_bytes + header_bytes
    if shape[0] == 0:
        return np.empty(layout.images_first(shape), dtype=dtype)
    return MappedPixels(path=path, dtype=dtype, stored=shape, offset=offset, layout=layout, stamp=stamp, fortran=fortran)


def _header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, whether in Fortran order, type and header length of one array, checked against its stored size."""
    where = f"{shown(path)}, array {printable(info.filename, 40)}"
    try:
        with archive.open(info) as stream:
            shape, fortran, dtype = npy_header(stream)
            header_bytes = stream.tell()
    except ValueError as error:
        raise DataError(f"{where} is not a NumPy array ({printable(str(error), 120)}); write it anew with np.savez") from None
    if dtype.hasobject:
        raise DataError(f"{where} holds pickled objects, which are never loaded as they can run code; store numbers")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size - header_bytes:
        raise DataError(f"{where} claims shape {shape}, more than the file holds; write it anew with np.savez")
    return shape, fortran, dtype, header_bytes


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> AnyArray:
    """One array of the archive, in memory; its header is checked before anything is allocated."""
    where = f"{shown(path)}, array {printable(info.filename, 40)}"
    shape, fortran, dtype, header_bytes = _header(archive, info, path)
    expected = math.prod(shape) * dtype.itemsize
    if expected > MAX_UNPACKED_BYTES:
        raise DataError(
            f"{where} unpacks to {expected / 2**30:.1f} GiB, more than the {MAX_UNPACKED_BYTES >> 30} GiB read at once; "
            "store it with np.savez, which does not compress and is read lazily"
        )
    data = bytearray()
    with archive.open(info) as stream:
        stream.read(header_bytes)
        while len(data) < expected and (block := stream.read(min(BLOCK_BYTES, expected - len(data)))):
            data += block
    if len(data) < expected:
        raise DataError(f"{where} is truncated: {len(data)} of {expected} bytes; write it anew with np.savez")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
