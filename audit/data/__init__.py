"""Labelled image data: ids, labels, class names, a digest, and images read lazily, chunk by chunk.

| reference | what it is |
|---|---|
| `digits`, `digits:train`, `digits:test` | scikit-learn's digits, all or one half |
| a folder of class folders | PNG, JPEG, BMP, WebP, TIFF; classes are the sorted folder names |
| a folder of idx files | MNIST, Fashion-MNIST and the like; the test part, or with `#train` the training part |
| `...-images-idx3-ubyte[.gz]` | one idx file, its labels beside it |
| `file.npz` | NumPy arrays images/labels, x/y or x_test/y_test, or with `#train` x_train/y_train |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from audit.data.arrays import ArrayDataset, load_npz
from audit.data.builtin import REFERENCES, load_digits
from audit.data.files import missing, refused, shown
from audit.data.idx import is_idx_folder, load_idx_file, load_idx_folder
from audit.data.image_folder import SUFFIXES, load_folder
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings

ACCEPTED = (
    "accepted are digits, digits:train, digits:test, a folder of class folders, a folder of MNIST-style idx files or one "
    "such images file, and .npz"
)


class Dataset(Protocol):
    """A labelled image data set. All images have one shape (c, h, w), c in {1, 3}."""

    @property
    def reference(self) -> str:
        """The text the user gave, redacted."""

    @property
    def source(self) -> str:
        """One line in words: what it is and where it came from."""

    @property
    def digest(self) -> str:
        """sha256 over the content of the source."""

    @property
    def ids(self) -> Strings:
        """One unique, stable id per example, (N,)."""

    @property
    def labels(self) -> Ints:
        """Class indices, (N,)."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names by class index; "0", "1", ... where the source has none."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: an image cannot be read, or has another shape.
        """


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A run of consecutive sampled examples; `positions` (n,) are their places in the sample's canonical order."""

    positions: Ints
    ids: Strings
    labels: Ints
    images: Images


def load(ref: str, *, class_names: Sequence[str] | None = None) -> Dataset:
    """The data set a reference stands for; the table at the top lists the forms. A built-in name wins over a folder of that name.

    Args:
        ref: the reference.
        class_names: the names by class index. For a folder of class folders they say which index each folder has.

    Raises:
        DataError: there is no such data, or it cannot be used; one sentence says why.
    """
    if class_names is not None and len(set(class_names)) != len(class_names):
        raise DataError("the class names given are not all different; give each class its own name")
    if ref in REFERENCES:
        return _named(load_digits(ref), class_names)
    path, train, split = _split(ref)
    try:
        names = [entry.name for entry in path.iterdir()] if path.is_dir() else None
    except OSError as error:
        raise refused(path, error) from None
    if names is not None and not is_idx_folder(names):
        if split:
            raise DataError(f"{shown(path)} is a folder of class folders and has no parts; leave {split} out")
        return load_folder(path, ref, class_order=class_names)
    if names is not None:
        return _named(load_idx_folder(path, ref, train=train), class_names)
    if path.suffix.lower() == ".npz":
        return _named(load_npz(path, ref, train=train), class_names)
    if split:
        raise DataError(f"{shown(path)} is one file and has no parts; leave {split} out")
    return _named(_load_file(path, ref), class_names)


def _load_file(path: Path, ref: str) -> ArrayDataset:
    if "idx" in path.name or path.name.removesuffix(".gz").endswith("ubyte"):
        return load_idx_file(path, ref)
    if path.suffix.lower() in SUFFIXES:
        raise DataError(f"{shown(path)} is a single image; give the folder that holds the class folders")
    raise DataError(f"{shown(path)} is in no known data format; {ACCEPTED}")


def _split(ref: str) -> tuple[Path, bool, str]:
    """The existing path of a reference, whether the training part is meant, and the part as written."""
    if not ref.strip() or "\0" in ref:
        raise DataError(f"the data reference is empty or holds a null character; {ACCEPTED}")
    if "://" in ref:
        raise DataError(f"data at {shown(ref)} cannot be fetched; download it and give the folder or file ({ACCEPTED})")
    whole = Path(ref)
    if _exists(whole):
        return whole, False, ""
    base, mark, part = ref.rpartition("#")
    if not mark or not base:
        raise missing(whole, also=REFERENCES)
    path = Path(base)
    if not _exists(path):
        raise missing(path, also=REFERENCES)
    if part not in ("train", "test"):
        raise DataError(f"{shown(ref)} names no part of {shown(path)}; write #train or #test")
    return path, part == "train", f"#{part}"


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise refused(path, error) from None
    return True


def _named(dataset: ArrayDataset, class_names: Sequence[str] | None) -> ArrayDataset:
    if class_names is None:
        return dataset
    largest = int(dataset.labels.max())
    if largest >= len(class_names):
        raise DataError(f"labels of {shown(dataset.reference)} reach {largest}, but only {len(class_names)} class names are given")
    return replace(dataset, class_names=tuple(class_names))
