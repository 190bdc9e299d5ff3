"""A folder of class folders: `folder/cat/1.png`, `folder/dog/2.jpg`.

Classes are the class folders' names sorted by code point (as torchvision's ImageFolder sorts them): "10" comes before "2". Images
may lie deeper inside a class folder. Names starting with a dot are left out, as are links that lead back to where they came from.

How pixels are read: as stored, without applying an EXIF rotation; transparency is composited on white; a palette becomes colour;
16-bit grey is scaled by 65535, 16-bit colour comes at 8 bits from Pillow; grey images among colour ones get three equal channels.
All images must have one height and width: resizing is not done yet.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from audit.data.files import digest_of, refused, sha256_of_file, shown
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import printable, redact

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
# A few hundred bytes can claim a picture of gigabytes; no classifier takes more than this many pixels.
MAX_PIXELS = 1 << 25
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16L", "I;16B"})
_WIDE_MODES = frozenset({"I", "F"})
_SPLITS = frozenset({"train", "training", "test", "val", "valid", "validation"})


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderDataset:
    """Images read from their files whenever they are asked for; `files` (N) are relative to `folder`, in the order of `ids`."""

    folder: Path
    files: tuple[str, ...]
    reference: str
    source: str
    ids: Strings
    labels: Ints
    class_names: tuple[str, ...]
    image_shape: tuple[int, int, int]

    @cached_property
    def digest(self) -> str:
        """sha256 over the sorted (id, sha256 of the file's bytes) pairs; reads every file once.

        Raises:
            DataError: a file cannot be read.
        """
        return digest_of({str(key): sha256_of_file(self.folder / file) for key, file in zip(self.ids, self.files, strict=True)})

    def images(self, indices: Sequence[int] | Ints) -> Images:
        """The images at `indices`, (n, c, h, w) float32 in [0, 1].

        Raises:
            DataError: an image cannot be read, or has changed its shape since the folder was loaded.
        """
        channels, height, width = self.image_shape
        images = np.empty((len(indices), channels, height, width), dtype=np.float32)
        for row, index in enumerate(indices):
            path = self.folder / self.files[index]
            pixels = read_image(path)
            if pixels.shape[1:] != (height, width) or pixels.shape[0] > channels:
                raise _odd(path, pixels.shape, self.image_shape)
            images[row] = pixels
        return images


def load_folder(folder: Path, reference: str, *, class_order: Sequence[str] | None = None) -> FolderDataset:
    """List a folder of class folders and check every image's header; `class_order` says which index each folder name has.

    Raises:
        DataError: there are no class folders or no images, a header cannot be read, or the images differ in size.
    """
    folders, loose = _class_folders(folder)
    names = tuple(_unicode(name) for name in folders)
    if class_order is None:
        order = {name: index for index, name in enumerate(names)}
    else:
        order = {name: index for index, name in enumerate(class_order)}
        for name in names:
            if name not in order:
                raise DataError(f"class folder {shown(name)} of {shown(folder)} is not among the class names given")
    files: list[str] = []
    labels: list[int] = []
    others = 0
    for raw, name in zip(folders, names, strict=True):
        for file in sorted(_files(folder, raw)):
            if Path(file).suffix.lower() in SUFFIXES:
                files.append(file)
                labels.append(order[name])
            else:
                others += 1
    if not files:
        raise DataError(f"the class folders of {shown(folder)} hold no images; accepted are {', '.join(SUFFIXES)}")
    ids = [_unicode(file) for file in files]
    if len(set(ids)) != len(ids):
        raise DataError(f"{shown(folder)} holds file names that cannot be told apart once written as text; rename them")
    shape, grey = _common_shape(folder, files)
    left_out = f", {others + loose} other files left out" if others + loose else ""
    widened = f", {grey} grey images among them read as colour" if grey else ""
    return FolderDataset(
        folder=folder,
        files=tuple(files),
        reference=redact(reference),
        source=f"folder of {len(folders)} class folders with {len(files)} images{widened}{left_out}",
        ids=np.array(ids),
        labels=np.array(labels, dtype=np.int64),
        class_names=names if class_order is None else tuple(class_order),
        image_shape=shape,
    )


def read_image(path: Path) -> Images:
    """One image file as (c, h, w) float32 in [0, 1], c 1 for grey and 3 for colour.

    Raises:
        DataError: it cannot be read as one still image of a reasonable size.
    """
    with _opened(path) as image:
        try:
            return _pixels(image)
        except Exception as error:  # Pillow's decoders raise errors of any kind on damaged bytes
            raise _unreadable(path, error) from None


def _pixels(image: Image.Image) -> Images:
    grey = image.mode in _GREY_MODES
    if image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float32) / np.float32(65535)
        return values[None]
    if image.has_transparency_data:
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, (255, 255, 255, 255)), over)
    values = np.asarray(image.convert("L" if grey else "RGB")).astype(np.float32) / np.float32(255)
    return values[None] if grey else np.ascontiguousarray(values.transpose(2, 0, 1))


def _opened(path: Path) -> Image.Image:
    """The image with its header read and checked; the pixels are not decoded yet."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for ever
            raise DataError(f"{shown(path)} is not a regular file; remove it from the data set")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
            image = Image.open(path, formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"image {shown(path)} claims far too many pixels (at most {MAX_PIXELS} are read); remove it") from None
    except (PermissionError, FileNotFoundError) as error:
        raise refused(path, error) from None
    except DataError:
        raise
    except Exception as error:  # as above: hostile headers raise errors of any kind
        raise _unreadable(path, error) from None
    trouble = _trouble(image)
    if trouble is not None:
        image.close()
        raise DataError(f"image {shown(path)} {trouble}")
    return image


def _trouble(image: Image.Image) -> str | None:
    if image.width * image.height > MAX_PIXELS:
        return f"claims {image.width} x {image.height} pixels (at most {MAX_PIXELS} are read); remove or shrink it"
    if image.mode in _WIDE_MODES:
        return "has 32 bits per value, whose range is unknown; store it with 8 or 16 bits"
    # A camera's JPEG may carry a preview as a second frame (MPO); its first frame is the picture.
    if image.format != "MPO" and getattr(image, "n_frames", 1) > 1:
        return f"has {getattr(image, 'n_frames', 1)} frames, but an audit takes still images; store one frame per file"
    return None


def _unreadable(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnidentifiedImageError):
        return DataError(f"{shown(path)} is not a {', '.join(_FORMATS)} image, whatever its name says; repair or remove it")
    reason = printable(str(error) or type(error).__name__, 120)
    return DataError(f"image {shown(path)} cannot be decoded ({reason}); it is truncated or damaged, repair or remove it")


def _common_shape(folder: Path, files: Sequence[str]) -> tuple[tuple[int, int, int], int]:
    """The one shape (c, h, w) of all images, from their headers, and how many grey images are widened to it."""
    grey = 0
    first: tuple[int, int, int] | None = None
    for file in files:
        with _opened(folder / file) as image:
            channels = 1 if image.mode in _GREY_MODES else 3
            shape = (channels, image.height, image.width)
        grey += channels == 1
        first = first or shape
        if shape[1:] != first[1:]:
            raise _odd(folder / file, shape, first)
    assert first is not None
    if grey == len(files):
        return first, 0
    return (3, *first[1:]), grey


def _odd(path: Path, shape: tuple[int, ...], expected: tuple[int, ...]) -> DataError:
    return DataError(
        f"image {shown(path)} has shape {shape} (channels, height, width), but the images before it have {expected}; "
        "bring all images to one size (resizing is not supported yet)"
    )


def _class_folders(folder: Path) -> tuple[list[str], int]:
    """The names of the class folders, sorted, and the number of files beside them."""
    try:
        with os.scandir(folder) as entries:
            visible = [entry for entry in entries if not entry.name.startswith(".")]
        above = {_identity(parent) for parent in (folder.resolve(), *folder.resolve().parents)}
        folders = [entry.name for entry in visible if entry.is_dir() and _identity(Path(entry.path)) not in above]
    except OSError as error:
        raise refused(folder, error) from None
    if not visible:
        raise DataError(f"folder {shown(folder)} is empty; it should hold one folder of images per class")
    if not folders:
        raise DataError(f"folder {shown(folder)} holds no class folders; put the images of each class into a folder with its name")
    if all(name.lower() in _SPLITS for name in folders):
        raise DataError(
            f"folder {shown(folder)} holds parts, not classes; give one of them, for example {shown(folder / folders[0])}"
        )
    return sorted(folders), sum(not entry.is_dir() for entry in visible)


def _files(folder: Path, class_folder: str) -> Iterator[str]:
    """Paths of all files under a class folder, relative to `folder` with forward slashes; each real folder is entered once."""
    entered: set[tuple[int, int]] = set()
    waiting = [class_folder]
    while waiting:
        relative = waiting.pop()
        try:
            identity = _identity(folder / relative)
            if identity in entered:
                continue
            entered.add(identity)
            with os.scandir(folder / relative) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    path = f"{relative}/{entry.name}"
                    if entry.is_dir():
                        waiting.append(path)
                    else:
                        yield path
        except OSError as error:
            raise refused(folder / relative, error) from None


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _unicode(name: str) -> str:
    r"""A file name as text that can be stored anywhere: bytes that are no UTF-8 are written as \xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
