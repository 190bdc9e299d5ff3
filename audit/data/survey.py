"""Many encoded images looked through: their one shape, and the unreadable ones counted and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from audit.data.decode import Encoded, decode, read_header
from audit.data.options import Options
from audit.data.pixels import scaled
from audit.data.resize import Resize
from audit.errors import DataError
from audit.evidence import Images, Ints, Strings
from audit.text import printable

_NAMED = 5
_LEAVE_OUT = "--skip-unreadable leaves such images out"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What was found: places of the readable images (`kept`) and of the others, all in the order given.

    The readable ones become `image_shape` (c, h, w); `notes` ends a source line; `narrowed` of them lose half of their 16 bits.
    """

    kept: Ints
    skipped: Ints
    image_shape: tuple[int, int, int]
    notes: str
    narrowed: int

    def cautions(self, ids: Strings) -> tuple[str, ...]:
        """The sentences a result must carry; `ids` are those of all images, readable or not."""
        found = []
        if len(self.skipped):
            total = len(self.kept) + len(self.skipped)
            named = [printable(str(ids[place]), 80) for place in self.skipped[:_NAMED]]
            found.append(
                f"{len(self.skipped)} of {total} images cannot be read and were skipped: {_listed(named, len(self.skipped))}"
            )
        if self.narrowed:
            found.append(
                f"{self.narrowed} of {len(self.kept)} images have 16 bits per colour value, of which the upper 8 were read"
            )
        return tuple(found)


def survey(images: Iterable[tuple[str, Encoded]], options: Options) -> Survey:
    """Look at every image of a source, given with the words that name it in messages; they are taken one at a time.

    Only headers are read, unless unreadable images are to be skipped: then each image is decoded once, as a truncated one has a
    sound header.

    Raises:
        DataError: images are unreadable (all of them, or any unless they are skipped), or differ in size and are not resized.
    """
    kept: list[int] = []
    skipped: list[int] = []
    unreadable: list[tuple[str, str]] = []
    first: tuple[int, int, int] | None = None
    grey = narrowed = total = 0
    for place, (where, content) in enumerate(images):
        total += 1
        try:
            header = read_header(where, content)
            if options.skip_unreadable:
                decode(where, content)
        except DataError as error:
            skipped.append(place)
            # Beyond the first few only their number is told.
            unreadable.append((where, str(error)) if len(unreadable) < _NAMED else ("", ""))
            continue
        first = first or header.shape
        if options.resize is None and header.shape[1:] != first[1:]:
            raise odd(where, header.shape, first)
        kept.append(place)
        grey += header.shape[0] == 1
        narrowed += header.narrowed
    if unreadable and (first is None or not options.skip_unreadable):
        raise unreadable_images(unreadable, total, "no image is left" if first is None else _LEAVE_OUT)
    if first is None:
        raise DataError("there are no examples; an audit needs at least one image with its label")
    channels = 1 if grey == len(kept) else 3
    height, width = first[1:] if options.resize is None else (options.resize.height, options.resize.width)
    notes = [f"{grey} grey images among them read as colour"] if 0 < grey < len(kept) else []
    if options.resize is not None:
        notes.append(str(options.resize))
    return Survey(
        kept=np.array(kept, dtype=np.int64),
        skipped=np.array(skipped, dtype=np.int64),
        image_shape=(channels, height, width),
        notes="".join(f", {note}" for note in notes),
        narrowed=narrowed,
    )


def read_images(
    images: Iterable[tuple[int, str, Encoded]], count: int, shape: tuple[int, int, int], resize: Resize | None
) -> Images:
    """Decode a chunk: each image comes with its row among `count` and the words that name it; (count, c, h, w) float32 in [0, 1].

    Raises:
        DataError: images cannot be read, or have another shape than the survey found.
    """
    decoded = np.empty((count, *shape), dtype=np.float32)
    unreadable: list[tuple[str, str]] = []
    for row, where, content in images:
        try:
            pixels = decode(where, content)
        except DataError as error:
            unreadable.append((where, str(error)))
            continue
        if resize is not None:
            pixels = resize.apply(pixels)
        if pixels.shape[1:] != shape[1:] or len(pixels) > shape[0]:
            raise odd(where, pixels.shape, shape)
        decoded[row] = scaled(pixels)
    if unreadable:
        raise unreadable_images(unreadable, count, _LEAVE_OUT)
    return decoded


def odd(where: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> DataError:
    """The sentence for an image of another shape than those before it."""
    return DataError(
        f"image {where} has shape {shape} (channels, height, width), but the images before it have {expected}; "
        "bring all images to one size, or have them resized (--resize HEIGHTxWIDTH)"
    )


def unreadable_images(unreadable: Sequence[tuple[str, str]], total: int, hint: str) -> DataError:
    """The one sentence for some images, (name, sentence) each, of `total` that were looked at."""
    sentence = unreadable[0][1]
    if len(unreadable) == 1:
        return DataError(f"{sentence} ({hint})")
    named = _listed([where for where, _ in unreadable[:_NAMED]], len(unreadable))
    return DataError(f"{len(unreadable)} of {total} images cannot be read: {named}; the first: {sentence} ({hint})")


def _listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (", ..." if count > len(names) else "")
