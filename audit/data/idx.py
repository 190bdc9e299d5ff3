"""MNIST-style idx files, plain or gzipped: the format of MNIST, Fashion-MNIST, KMNIST, EMNIST.

A plain file is mapped and read lazily; a gzipped one is unpacked into memory. Fashion-MNIST is recognised, so that its classes have
names, by the sha256 of its unpacked labels, or else when the folder (or the folder above it) is called FashionMNIST, fashion-mnist
or the like; any other data set gets the names "0", "1", ...
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from audit.data.arrays import ArrayDataset
from audit.data.files import (
    BLOCK_BYTES,
    MAX_DEFLATE_RATIO,
    MAX_UNPACKED_BYTES,
    check_regular,
    digest_of,
    missing,
    refused,
    sha256_of_file,
    shown,
)
from audit.data.labels import checked_labels, numbered_names
from audit.data.pixels import Layout, MappedPixels, file_stamp
from audit.errors import DataError
from audit.text import printable, redact

Bytes = npt.NDArray[np.uint8]

FASHION_NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
# sha256 of the unpacked label files (header and labels) of the published test and training parts.
_FASHION_LABELS = {
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
}
_STANDARD_NAME = re.compile(r"^(?P<part>t10k|test|train)-(?P<what>images|labels)[-.]idx[13]-ubyte(?:\.gz)?$")
_UNSIGNED_BYTES = 0x08


def is_idx_folder(names: list[str]) -> bool:
    """Whether a folder with these entries holds idx files under their usual names."""
    return any(_STANDARD_NAME.match(name) for name in names)


def load_idx_folder(folder: Path, reference: str, *, train: bool = False) -> ArrayDataset:
    """Read `t10k-images-idx3-ubyte[.gz]` and its labels, or for `train` the training part.

    Raises:
        DataError: the part is not there, or a file is damaged.
    """
    parts = ("train",) if train else ("t10k", "test")
    names = sorted(entry.name for entry in folder.iterdir())  # a plain file sorts before its .gz
    for name in names:
        match = _STANDARD_NAME.match(name)
        if match and match["what"] == "images" and match["part"] in parts:
            return load_idx_file(folder / name, reference)
    wanted = "train-images-idx3-ubyte" if train else "t10k-images-idx3-ubyte"
    hint = "" if train else "; for the training part write the folder followed by #train"
    raise DataError(f"{shown(folder)} holds no {wanted} or {wanted}.gz{hint}")


def load_idx_file(path: Path, reference: str) -> ArrayDataset:
    """Read one images file and the labels file beside it (its name with `images` and `idx3` replaced by `labels` and `idx1`).

    Ids are `t10k-17` and the like: the start of the file's name and the row number.

    Raises:
        DataError: a file is missing or damaged, or the two do not fit.
    """
    if "images" not in path.name:
        raise DataError(f"{shown(path)} is no images file by its name; give the ...images-idx3-ubyte file")
    labels_path = _labels_beside(path)
    pixels = _read(path, dimensions=3)
    label_bytes = _read(labels_path, dimensions=1)
    labels = checked_labels(label_bytes, len(pixels), shown(path))
    if 0 in pixels.shape:
        raise DataError(f"{shown(path)}: images of shape {pixels.shape[1:]} have no pixels")
    fashion = _is_fashion(path, label_bytes)
    part = printable(path.name.partition("images")[0].strip("-_."))
    return ArrayDataset(
        reference=redact(reference),
        source=f"{'Fashion-MNIST' if fashion else 'idx files'}, {printable(path.name)} and {printable(labels_path.name)}",
        digest=digest_of({file.name: sha256_of_file(file) for file in (path, labels_path)}),
        ids=np.array([f"{part}-{index}" if part else str(index) for index in range(len(pixels))]),
        labels=labels,
        class_names=FASHION_NAMES if fashion else numbered_names(labels),
        pixels=_pixels(path, pixels),
    )


def _pixels(path: Path, images: Bytes) -> Bytes | MappedPixels:
    if not isinstance(images, np.memmap):
        return images[:, None]
    return MappedPixels(
        path=path, dtype=images.dtype, stored=images.shape, offset=images.offset, layout=Layout.GREY, stamp=file_stamp(path)
    )


def _labels_beside(path: Path) -> Path:
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    plain = name.removesuffix(".gz")
    for candidate in (name, plain, plain + ".gz"):
        if path.with_name(candidate).exists():
            return path.with_name(candidate)
    raise missing(path.with_name(name))


def _is_fashion(path: Path, labels: Bytes) -> bool:
    if labels.max() >= len(FASHION_NAMES):
        return False
    header = b"\0\0\x08\x01" + len(labels).to_bytes(4, "big")
    if hashlib.sha256(header + labels.tobytes()).hexdigest() in _FASHION_LABELS:
        return True
    folder = path.absolute().parent
    return any(re.sub(r"[^a-z]", "", name.lower()).startswith("fashionmnist") for name in (folder.name, folder.parent.name))


def _read(path: Path, *, dimensions: int) -> Bytes:
    """The array of one idx file of unsigned bytes with this many dimensions."""
    packed = path.name.endswith(".gz")
    header_bytes = 4 + 4 * dimensions
    check_regular(path)
    try:
        size = path.stat().st_size
        with gzip.open(path) if packed else path.open("rb") as file:
            shape = _shape(path, file.read(header_bytes), dimensions)
            expected = math.prod(shape)
            if expected > (size * MAX_DEFLATE_RATIO if packed else size - header_bytes):
                raise DataError(f"{shown(path)} claims {_times(shape)} bytes, more than the file can hold; it is truncated")
            if not packed:
                if size > header_bytes + expected:
                    raise DataError(f"{shown(path)} has {size - header_bytes - expected} bytes more than it claims; it is damaged")
                if expected == 0:
                    return np.empty(shape, dtype=np.uint8)
                return np.memmap(path, dtype=np.uint8, mode="r", offset=header_bytes, shape=shape)
            if expected > MAX_UNPACKED_BYTES:
                raise DataError(
                    f"{shown(path)} unpacks to {expected / 2**30:.1f} GiB; unpack it first, a plain file is read lazily"
                )
            data = bytearray()
            while len(data) <= expected and (block := file.read(BLOCK_BYTES)):
                data += block
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = printable(str(error).rstrip("."), 120)
        raise DataError(f"{shown(path)} is truncated, damaged or no gzip file ({reason}); fetch it again") from None
    except OSError as error:
        raise refused(path, error) from None
    if len(data) != expected:
        trouble = (
            f"truncated: {len(data)} of {expected} bytes" if len(data) < expected else f"longer than the {expected} bytes it claims"
        )
        raise DataError(f"{shown(path)} is {trouble}; fetch it again")
    return np.frombuffer(bytes(data), dtype=np.uint8).reshape(shape)


def _shape(path: Path, header: bytes, dimensions: int) -> tuple[int, ...]:
    what = "images" if dimensions == 3 else "labels"
    magic = bytes([0, 0, _UNSIGNED_BYTES, dimensions])
    if header[:4] != magic:
        raise DataError(
            f"{shown(path)} is no idx file of {what}: it starts with {header[:4].hex() or 'nothing'}, not {magic.hex()}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise DataError(f"{shown(path)} ends inside its header; fetch it again")
    return tuple(int.from_bytes(header[start : start + 4], "big") for start in range(4, len(header), 4))


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(length) for length in shape)
