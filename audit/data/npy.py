"""A pair of `.npy` files, images and labels side by side: mapped, read lazily, never unpickled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from audit.data.arrays import ArrayDataset
from audit.data.files import check_regular, digest_of, missing, refused, sha256_of_file, shown
from audit.data.labels import checked_labels, numbered_names
from audit.data.npz import TEST_KEYS, TRAIN_KEYS, npy_header
from audit.data.pixels import MappedPixels, check_pixels, file_stamp, layout_of, map_array
from audit.errors import DataError
from audit.text import printable, redact


def is_npy_folder(names: list[str]) -> bool:
    """Whether a folder with these entries holds a pair of `.npy` files under one of the usual names."""
    return any(f"{images}.npy" in names and f"{labels}.npy" in names for images, labels in (*TEST_KEYS, *TRAIN_KEYS))


def load_npy_folder(folder: Path, names: list[str], reference: str, *, train: bool = False) -> ArrayDataset:
    """Read images.npy and labels.npy, x.npy and y.npy, or x_test.npy and y_test.npy (for `train`: x_train.npy and y_train.npy).

    Raises:
        DataError: the part is not there, or a file is damaged.
    """
    accepted = TRAIN_KEYS if train else TEST_KEYS
    for images, labels in accepted:
        if f"{images}.npy" in names and f"{labels}.npy" in names:
            return _load(folder / f"{images}.npy", folder / f"{labels}.npy", reference)
    wanted = " or ".join(f"{images}.npy and {labels}.npy" for images, labels in accepted)
    raise DataError(f"{shown(folder)} holds no {wanted}{'' if train else '; for the training part add #train'}")


def load_npy_file(path: Path, reference: str) -> ArrayDataset:
    """Read one images file and the labels file beside it: `images` in its name replaced by `labels`, or a leading `x` by `y`.

    Raises:
        DataError: a file is missing or damaged, or the two do not fit.
    """
    if "images" in path.name:
        beside = path.with_name(path.name.replace("images", "labels"))
    elif path.name.startswith(("x", "X")):
        beside = path.with_name(f"y{path.name[1:]}")
    else:
        raise DataError(f"{shown(path)} is no images file by its name; call the pair images.npy and labels.npy, and give the first")
    if not beside.exists():
        raise missing(beside)
    return _load(path, beside, reference)


def _load(images_path: Path, labels_path: Path, reference: str) -> ArrayDataset:
    where = shown(images_path)
    check_regular(images_path)
    stamp = file_stamp(images_path)
    dtype, shape, offset, fortran = array_header(images_path)
    layout = layout_of(shape, where)
    label_dtype, label_shape, label_offset, _ = array_header(labels_path)
    if 0 in label_shape or shape[0] == 0:
        raise DataError(f"{where}: there are no examples; an audit needs at least one image with its label")
    labels = checked_labels(map_array(labels_path, label_dtype, label_shape, label_offset), shape[0], shown(labels_path))
    pixels = MappedPixels(path=images_path, dtype=dtype, stored=shape, offset=offset, layout=layout, stamp=stamp, fortran=fortran)
    check_pixels(pixels, where)
    return ArrayDataset(
        reference=redact(reference),
        source=f"NumPy files {printable(images_path.name)} and {printable(labels_path.name)}",
        digest=digest_of({file.name: sha256_of_file(file) for file in (images_path, labels_path)}),
        ids=np.array([str(index) for index in range(shape[0])]),
        labels=labels,
        class_names=numbered_names(labels),
        pixels=pixels,
    )


def array_header(path: Path) -> tuple[np.dtype[Any], tuple[int, ...], int, bool]:
    """Type, shape, where the data begin, and whether they are in Fortran order; checked against the size of the file."""
    where = shown(path)
    check_regular(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            shape, fortran, dtype = npy_header(file)
            offset = file.tell()
    except OSError as error:
        raise refused(path, error) from None
    except ValueError as error:
        raise DataError(f"{where} is not a NumPy array ({printable(str(error), 120)}); write it anew with np.save") from None
    if dtype.hasobject:
        raise DataError(f"{where} holds pickled objects, which are never loaded as they can run code; store numbers")
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected > size - offset:
        raise DataError(f"{where} claims shape {shape}, more than the file holds; it is truncated, write it anew with np.save")
    if dtype.itemsize == 0 or dtype.kind not in "biufc":
        raise DataError(f"{where} holds {printable(str(dtype), 60)}, not numbers; write it anew with np.save")
    return dtype, shape, offset, fortran
