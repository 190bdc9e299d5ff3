"""Published folders of corrupted images, each image matched to the clean example that it was made from.

| form | layout | matched by |
|---|---|---|
| CIFAR-10-C | `<kind>.npy` (5 n, h, w, c) uint8, five severities of n images in turn, and `labels.npy` | position in the \
clean data, whose labels must agree |
| ImageNet-C | `<kind>/<severity>/<class folder>/<image>`, severities 1 to 5 | class folder and file name, whatever its suffix is |

Arrays are mapped and files decoded when they are asked for, so that memory holds no more than one chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from audit.data.decode import SUFFIXES, read_header
from audit.data.files import digest_of, missing, refused, sha256_of_file, shown
from audit.data.labels import checked_labels
from audit.data.npy import array_header
from audit.data.pixels import MappedPixels, file_stamp, layout_of, map_array, scaled
from audit.data.resize import Resize
from audit.data.survey import read_images
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings

SEVERITIES = ("1", "2", "3", "4", "5")
_LABELS = "labels.npy"
_KIND = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_FORMS = "accepted are <kind>.npy files with labels.npy (CIFAR-10-C) and <kind>/<severity>/<class folder>/<image> (ImageNet-C)"


class CorruptedImages(Protocol):
    """Corrupted images of the examples of a data set, at severities 1 to 5 of each kind."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds there are, sorted by name, published or not."""

    @property
    def form(self) -> str:
        """The data set whose layout this is."""

    @property
    def digest(self) -> str:
        """sha256 over the content and name of every file that images are taken from."""

    def images(self, ids: Sequence[str], kind: str, severity: int) -> Images:
        """The corrupted images of these examples, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: an image cannot be read, or is not of the clean images' shape.
        """


class CleanData(Protocol):
    """What is asked of the clean data: examples with their labels, and the one shape of their images."""

    @property
    def ids(self) -> Strings:
        """(N,)."""

    @property
    def labels(self) -> Ints:
        """(N,)."""

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(c, h, w)."""


@dataclass(frozen=True, kw_only=True)
class CorruptedArrays:
    """One mapped array per kind; `rows` says at which of the n examples of a severity each id is."""

    kinds: tuple[str, ...]
    digest: str
    pixels: Mapping[str, MappedPixels]
    rows: Mapping[str, int]
    examples: int
    image_shape: tuple[int, int, int]
    resize: Resize | None
    form: str = "CIFAR-10-C"

    def images(self, ids: Sequence[str], kind: str, severity: int) -> Images:
        """As `CorruptedImages.images`."""
        start = (severity - 1) * self.examples
        stored = self.pixels[kind][np.array([start + self.rows[each] for each in ids], dtype=np.int64)]
        if self.resize is None:
            return scaled(stored)
        resized = np.empty((len(ids), *self.image_shape), dtype=np.float32)
        for row, pixels in enumerate(stored):
            resized[row] = scaled(self.resize.apply(pixels))
        return resized


@dataclass(frozen=True, kw_only=True)
class CorruptedFiles:
    """One file per image; `files` says which one an id has below each `<kind>/<severity>`."""

    kinds: tuple[str, ...]
    digest: str
    folder: Path
    files: Mapping[str, str]
    image_shape: tuple[int, int, int]
    resize: Resize | None
    form: str = "ImageNet-C"

    def images(self, ids: Sequence[str], kind: str, severity: int) -> Images:
        """As `CorruptedImages.images`."""
        paths = [self.folder / kind / str(severity) / self.files[each] for each in ids]
        named = ((row, shown(path), path) for row, path in enumerate(paths))
        return read_images(named, len(ids), self.image_shape, self.resize)


def load_corrupted(folder: Path, clean: CleanData, indices: Ints, resize: Resize | None = None) -> CorruptedImages:
    """The corrupted images in a folder, for the examples at `indices` of the clean data.

    Args:
        folder: in one of the forms above.
        clean: the data that the images were made from.
        indices: the examples whose corrupted images may be asked for.
        resize: what the clean images were brought to; the corrupted ones are too.

    Raises:
        DataError: the folder is in no known form, lacks a severity or images of these examples, or does not belong to these data.
    """
    if not folder.exists():
        raise missing(folder)
    if not folder.is_dir():
        raise DataError(f"{shown(folder)} is no folder; {_FORMS}")
    names = _names(folder)
    if _LABELS in names:
        return _load_arrays(folder, names, clean, indices, resize)
    kinds = [name for name in names if any((folder / name / severity).is_dir() for severity in SEVERITIES)]
    if kinds:
        return _load_files(folder, kinds, clean, indices, resize)
    lacks = f": it has no {_LABELS}" if any(name.endswith(".npy") for name in names) else ""
    raise DataError(f"{shown(folder)} is no folder of corrupted images{lacks}; {_FORMS}")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise refused(folder, error) from None


def _check_kinds(folder: Path, kinds: Sequence[str]) -> None:
    if not kinds:
        raise DataError(f"{shown(folder)} holds {_LABELS} and no <kind>.npy beside it; {_FORMS}")
    odd = next((kind for kind in kinds if not _KIND.fullmatch(kind)), None)
    if odd is not None:
        raise DataError(f"{shown(folder)} names a kind {shown(odd)}; a kind's name has up to 40 letters, digits, _ and -")


def _load_arrays(folder: Path, names: list[str], clean: CleanData, indices: Ints, resize: Resize | None) -> CorruptedArrays:
    kinds = [name.removesuffix(".npy") for name in names if name.endswith(".npy") and name != _LABELS]
    _check_kinds(folder, kinds)
    _check_labels(folder / _LABELS, clean.labels)
    pixels = {kind: _mapped(folder / f"{kind}.npy", clean, resize) for kind in kinds}
    return CorruptedArrays(
        kinds=tuple(kinds),
        digest=digest_of({name: sha256_of_file(folder / name) for name in (_LABELS, *(f"{kind}.npy" for kind in kinds))}),
        pixels=pixels,
        rows={str(clean.ids[index]): int(index) for index in indices},
        examples=len(clean.labels),
        image_shape=clean.image_shape,
        resize=resize,
    )


def _check_labels(path: Path, clean: Ints) -> None:
    """Labels once, or once for each severity, which must be those of the clean data in the same order."""
    dtype, shape, offset, _ = array_header(path)
    found = checked_labels(map_array(path, dtype, shape, offset), shape[0] if shape else 0, shown(path))
    if len(found) not in (len(clean), len(SEVERITIES) * len(clean)):
        raise DataError(
            f"{shown(path)} holds {len(found)} labels, but the data have {len(clean)} examples, five times {len(clean)} with their "
            "severities; give the whole clean test set that the images were made from, in its order"
        )
    differing = np.flatnonzero(found != np.resize(clean, len(found)))
    if len(differing):
        row = int(differing[0])
        raise DataError(
            f"{shown(path)} disagrees with the data in {len(differing)} of {len(found)} labels (row {row}: {found[row]}, "
            f"example {row % len(clean)}: {clean[row % len(clean)]}); give the clean test set that the images were made from, in "
            "its order"
        )


def _mapped(path: Path, clean: CleanData, resize: Resize | None) -> MappedPixels:
    stamp = file_stamp(path)
    dtype, shape, offset, fortran = array_header(path)
    if dtype != np.uint8:
        raise DataError(f"{shown(path)} holds {dtype} values, but corrupted images are stored as uint8; convert them")
    pixels = MappedPixels(
        path=path, dtype=dtype, stored=shape, offset=offset, layout=layout_of(shape, shown(path)), stamp=stamp, fortran=fortran
    )
    expected = len(SEVERITIES) * len(clean.labels)
    if len(pixels) != expected:
        raise DataError(
            f"{shown(path)} holds {len(pixels)} images, but five severities of the {len(clean.labels)} examples are {expected}; "
            "a severity or examples are missing, or the clean data are others"
        )
    _check_shape(shown(path), pixels.shape[1:], clean.image_shape, resize)
    return pixels


def _check_shape(where: str, found: tuple[int, ...], expected: tuple[int, int, int], resize: Resize | None) -> None:
    if found[0] != expected[0] or (resize is None and found[1:] != expected[1:]):
        raise DataError(
            f"{where} has images of shape {tuple(found)} (channels, height, width), but the clean data have {expected}; give the "
            "clean images in that form, or have all of them resized (--resize HEIGHTxWIDTH)"
        )


def _load_files(folder: Path, kinds: list[str], clean: CleanData, indices: Ints, resize: Resize | None) -> CorruptedFiles:
    _check_kinds(folder, kinds)
    for kind in kinds:
        absent = [severity for severity in SEVERITIES if not (folder / kind / severity).is_dir()]
        if absent:
            raise DataError(f"{shown(folder / kind)} has no folder for severity {', '.join(absent)}; an audit reads all five")
    files = dict(_matched(folder / kinds[0] / SEVERITIES[0], [str(clean.ids[index]) for index in indices]))
    hashed = {}
    for place in (f"{kind}/{severity}" for kind in kinds for severity in SEVERITIES):
        for number, file in enumerate(files.values()):
            path = folder / place / file
            if number == 0:
                # Grey images among colour ones get three equal channels, as those of the clean data do.
                channels, *size = read_header(shown(path), path).shape
                _check_shape(shown(path), (max(channels, clean.image_shape[0]), *size), clean.image_shape, resize)
            hashed[f"{place}/{file}"] = sha256_of_file(path)
    return CorruptedFiles(
        kinds=tuple(kinds),
        digest=digest_of(hashed),
        folder=folder,
        files=files,
        image_shape=clean.image_shape,
        resize=resize,
    )


def _matched(folder: Path, ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each id with the file of its class folder and name below `folder`."""
    listed: dict[str, dict[str, str]] = {}
    for key in ids:
        path = PurePosixPath(key)
        above = path.parent.name
        if above in ("", ".."):
            raise DataError(
                f"corrupted images below {shown(folder)} are matched by class folder and file name, but example {shown(key)} has "
                "no class folder; give the clean images as a folder of class folders"
            )
        if above not in listed:
            if not (folder / above).is_dir():
                raise DataError(f"there is no class folder {shown(folder / above)}, where the image of {shown(key)} would be")
            listed[above] = {
                PurePosixPath(name).stem: name for name in _names(folder / above) if PurePosixPath(name).suffix.lower() in SUFFIXES
            }
        if path.stem not in listed[above]:
            raise DataError(f"{shown(folder / above)} has no image of {shown(key)}; give the clean images these were made from")
        yield key, f"{above}/{listed[above][path.stem]}"
