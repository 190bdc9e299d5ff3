"""Images that occur twice, and audited images that were trained on: exact matches of what the model sees.

An image's digest is the sha256 of its shape and its float32 pixels, after decoding and resizing. Only digests are kept in memory,
32 bytes each; a copy that was compressed anew, cropped or shifted has another digest and is not found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audit.data import Dataset
from audit.errors import DataError
from audit.evidence import Images, Ints
from audit.text import printable

_CHUNK_BYTES = 1 << 23
_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """Of `images`, `copies` equal an earlier one, `conflicting` of them under another label; `first` pairs (copy, earlier)."""

    images: int
    copies: int
    conflicting: int
    first: tuple[tuple[str, str], ...]

    @property
    def caution(self) -> str | None:
        """The sentence for the report, if there is anything to say."""
        if self.copies == 0:
            return None
        other = f", {self.conflicting} of them with another label" if self.conflicting else ""
        return (
            f"{self.copies} of {self.images} images are exact copies of others in the sample{other}, so intervals are too narrow: "
            f"{_pairs(self.first, self.copies)}"
        )


@dataclass(frozen=True, kw_only=True)
class Contamination:
    """Of `images` audited, `found` are among the `train_images`; `first` pairs (audited id, training id)."""

    images: int
    train_images: int
    found: int
    first: tuple[tuple[str, str], ...]

    @property
    def caution(self) -> str | None:
        """The sentence for the report, if there is anything to say."""
        if self.found == 0:
            return None
        return (
            f"{self.found} of {self.images} audited images are also among the {self.train_images} training images, so the numbers "
            f"flatter the model: {_pairs(self.first, self.found)}"
        )


def image_digests(images: Images) -> list[bytes]:
    """The sha256 of each image (n, c, h, w), over its shape and its little-endian float32 pixels."""
    # Adding zero makes -0.0 and 0.0, which a model cannot tell apart, alike in their bytes too.
    pixels = np.ascontiguousarray(images + np.float32(0), dtype="<f4")
    shape = "x".join(map(str, pixels.shape[1:])).encode() + b":"
    return [hashlib.sha256(shape + image.tobytes()).digest() for image in pixels]


def duplicates(dataset: Dataset, indices: Sequence[int] | Ints) -> Duplicates:
    """Exact copies among the images at `indices`, in that order.

    Raises:
        DataError: an image cannot be read.
    """
    seen: dict[bytes, int] = {}
    copies = conflicting = 0
    first: list[tuple[str, str]] = []
    for index, digest in _digests(dataset, indices):
        earlier = seen.setdefault(digest, index)
        if earlier == index:
            continue
        copies += 1
        conflicting += bool(dataset.labels[index] != dataset.labels[earlier])
        if len(first) < _NAMED:
            first.append((str(dataset.ids[index]), str(dataset.ids[earlier])))
    return Duplicates(images=len(indices), copies=copies, conflicting=conflicting, first=tuple(first))


def contamination(dataset: Dataset, indices: Sequence[int] | Ints, train: Dataset) -> Contamination:
    """The images at `indices` that are also in the training data, each counted once; all of `train` is read.

    Raises:
        DataError: an image cannot be read, or the two sets have images of different shapes, which are never equal.
    """
    if dataset.image_shape != train.image_shape:
        raise DataError(
            f"the training data have images of shape {train.image_shape}, the audited data {dataset.image_shape}, "
            "so none can be equal; give both in one form and size"
        )
    audited: dict[bytes, list[int]] = {}
    for index, digest in _digests(dataset, indices):
        audited.setdefault(digest, []).append(index)
    found: dict[int, int] = {}
    for index, digest in _digests(train, range(len(train.labels))):
        for position in audited.pop(digest, ()):
            found[position] = index
    first = tuple((str(dataset.ids[index]), str(train.ids[found[index]])) for index in sorted(found)[:_NAMED])
    return Contamination(images=len(indices), train_images=len(train.labels), found=len(found), first=first)


def _digests(dataset: Dataset, indices: Sequence[int] | Ints) -> Iterator[tuple[int, bytes]]:
    rows = max(1, _CHUNK_BYTES // (4 * int(np.prod(dataset.image_shape))))
    for start in range(0, len(indices), rows):
        part = [int(index) for index in indices[start : start + rows]]
        yield from zip(part, image_digests(dataset.images(part)), strict=True)


def _pairs(first: Sequence[tuple[str, str]], count: int) -> str:
    named = ", ".join(f"{printable(one, 60)} is {printable(other, 60)}" for one, other in first)
    return named + (", ..." if count > len(first) else "")
