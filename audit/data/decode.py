"""One encoded image becomes pixels; headers are checked before anything is decoded.

How pixels are read: as stored, without applying an EXIF rotation; transparency is composited on white; a palette becomes colour;
16-bit grey is scaled by 65535 (a transparent value in it is taken as it is); 16-bit colour, and 16-bit grey with transparency, come
from Pillow with the upper 8 bits of each value.
"""

from __future__ import annotations

import io
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from audit.data.files import refused
from audit.data.pixels import AnyArray
from audit.errors import DataError
from audit.text import printable

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF")
# A few hundred bytes can claim a picture of gigabytes; no classifier takes more than this many pixels.
MAX_PIXELS = 1 << 25
_GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16L", "I;16B"})
_WIDE_MODES = frozenset({"I", "F"})

# An image file, the bytes of one, or nothing where a source has an empty place.
Encoded = Path | bytes | None


@dataclass(frozen=True, kw_only=True)
class Header:
    """What is known before decoding: (c, h, w), and whether 16-bit values lose their lower half."""

    shape: tuple[int, int, int]
    narrowed: bool


def read_header(where: str, content: Encoded) -> Header:
    """Shape and depth of an encoded image; `where` names it in messages.

    Raises:
        DataError: it is no still image of a known format and a reasonable size.
    """
    with _opened(where, content) as image:
        mode = _stored_as(image)
        narrowed = "16" in mode and not image.mode.startswith("I;16")
        return Header(shape=(1 if _is_grey(image) else 3, image.height, image.width), narrowed=narrowed)


def decode(where: str, content: Encoded) -> AnyArray:
    """The pixels of an encoded image, (c, h, w), uint8 or (from 16-bit grey) float32 in [0, 1]; c is 1 for grey, 3 for colour.

    Raises:
        DataError: it cannot be read as one still image of a reasonable size.
    """
    with _opened(where, content) as image, _no_truncated_images():
        try:
            return _pixels(image)
        except Exception as error:  # Pillow's decoders raise errors of any kind on damaged bytes
            raise _unreadable(where, error) from None


@contextmanager
def _no_truncated_images() -> Iterator[None]:
    """Refuse half an image, whatever else was imported: WeasyPrint makes Pillow fill the missing part with grey, process-wide."""
    before = ImageFile.LOAD_TRUNCATED_IMAGES
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def _pixels(image: Image.Image) -> AnyArray:
    grey = _is_grey(image)
    if image.mode.startswith("I;16"):
        return (np.asarray(image).astype(np.float32) / np.float32(65535))[None]
    if image.has_transparency_data:
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, (255, 255, 255, 255)), over)
    values = np.asarray(image.convert("L" if grey else "RGB"))
    return values[None] if grey else values.transpose(2, 0, 1)


def _is_grey(image: Image.Image) -> bool:
    return image.mode in _GREY_MODES or _stored_as(image).startswith("LA;16")


def _stored_as(image: Image.Image) -> str:
    """Pillow's name of the stored form, such as "RGB;16B"; 16-bit grey with transparency is opened as colour."""
    tiles = getattr(image, "tile", [])
    args = tiles[0][3] if tiles else ""
    return str(args[0] if isinstance(args, tuple) and args else args)


def _opened(where: str, content: Encoded) -> Image.Image:
    """The image with its header read and checked; the pixels are not decoded yet."""
    if content is None:
        raise DataError(f"image {where} has no bytes; store the image itself, not just its path")
    try:
        if isinstance(content, Path) and not stat.S_ISREG(content.stat().st_mode):  # opening a pipe would wait for ever
            raise DataError(f"{where} is not a regular file; remove it from the data set")
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            warnings.filterwarnings("ignore", category=UserWarning, module="PIL")
            image = Image.open(content if isinstance(content, Path) else io.BytesIO(content), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise DataError(f"image {where} claims far too many pixels (at most {MAX_PIXELS} are read); remove it") from None
    except FileNotFoundError:
        raise DataError(f"there is no image {where}; check the name, or remove it from the data set") from None
    except PermissionError as error:
        raise refused(Path(str(content)), error) from None
    except DataError:
        raise
    except Exception as error:  # as above: hostile headers raise errors of any kind
        raise _unreadable(where, error) from None
    trouble = _trouble(image)
    if trouble is not None:
        image.close()
        raise DataError(f"image {where} {trouble}")
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


def _unreadable(where: str, error: Exception) -> DataError:
    if isinstance(error, UnidentifiedImageError):
        return DataError(f"{where} is not a {', '.join(_FORMATS)} image, whatever its name says; repair or remove it")
    reason = printable(str(error) or type(error).__name__, 120)
    return DataError(f"image {where} cannot be decoded ({reason}); it is truncated or damaged, repair or remove it")
