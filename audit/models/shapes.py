"""Sizes: what the data have, what a model declares, and one sentence when they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch

from audit.errors import ModelError
from audit.models.input_spec import InputSpec
from audit.models.layouts import LAYOUTS, fits
from audit.result import ModelIdentity
from audit.text import printable


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What an exported program says of its input: fixed rows per call, and the shape of one image as it receives it."""

    rows: int | None = None
    shape: tuple[int | None, ...] | None = None


def check_images(images: torch.Tensor, identity: ModelIdentity) -> None:
    """Make sure that images are (n, c, h, w) with the shape the model was loaded for.

    Raises:
        ModelError: they are not.
    """
    if images.ndim != 4 or tuple(images.shape[1:]) != identity.input_shape:
        given = times(tuple(images.shape[1:]))
        raise ModelError(f"{identity.label}: was loaded for images of {times(identity.input_shape)}, but was given {given}")


def check_declared(shape: tuple[int | None, ...] | None, spec: InputSpec, image_shape: tuple[int, int, int], who: str) -> None:
    """Compare the images with the shape of one image that the model declares (None: any size).

    Raises:
        ModelError: they differ; says both shapes.
    """
    seen = spec.shape_seen(image_shape)
    if shape is None or fits(shape, seen):
        return
    form = next(forms(shape, image_shape), None)
    keys = [] if form is None else [option for option in form.options if option not in form_of(spec).options]
    advice = f"state {','.join(keys)}" if keys else "use data of that shape, or see what audit inspect says"
    raise ModelError(f"{who}: takes images of {times(shape)}, but the data, as {spec.layout}, are {times(seen)}; {advice}")


@dataclass(frozen=True, kw_only=True)
class Form:
    """The keys of an input specification that decide the shape of what the model receives."""

    layout: str
    colour: str = "keep"
    size: tuple[int, int] | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """As options; a colour or size that changes nothing is left out."""
        colour = () if self.colour == "keep" else (f"colour={self.colour}",)
        size = () if self.size is None else ("size={}x{}".format(*self.size),)
        return (f"layout={self.layout}", *colour, *size)


def form_of(spec: InputSpec) -> Form:
    """The form of a specification."""
    return Form(layout=spec.layout, colour=spec.colour, size=spec.size)


def forms(shape: tuple[int | None, ...] | None, image_shape: tuple[int, int, int]) -> Iterator[Form]:
    """Every form in which images (c, h, w) have the shape that a model declares (None: any), the smallest change first.

    Another size is looked for only where none fits at the size of the data; flattened images are taken to be square.
    """
    c, h, w = image_shape
    colours = {"keep": c, **{1: {"repeat": 3}, 3: {"luma": 1}}.get(c, {})}
    found = False
    for size in (None, *_sizes(shape)):
        for colour, channels in colours.items():
            for name, layout in LAYOUTS.items():
                if layout.channels in (None, channels) and fits(shape, layout.shape(channels, *(size or (h, w)))):
                    found = True
                    yield Form(layout=name, colour=colour, size=size)
        if found:
            return


def _sizes(shape: tuple[int | None, ...] | None) -> Iterator[tuple[int, int]]:
    """Heights and widths that may be in a declared shape: a square that was flattened, or two neighbouring axes."""
    for size in shape or ():
        for channels in (1, 3):
            side = math.isqrt((size or 0) // channels)
            if side and side * side * channels == size:
                yield side, side
    yield from ((a, b) for a, b in pairwise(shape or ()) if a is not None and b is not None)


def times(shape: tuple[int | None, ...]) -> str:
    """`3x224x224`, with `?` for any size."""
    return "x".join("?" if size is None else str(size) for size in shape) or "no shape"


def refused(who: str, spec: InputSpec, image_shape: tuple[int, int, int], error: Exception) -> str:
    """One sentence for a model that raised on its input."""
    reason = printable(str(error).strip().split("\n")[0] or type(error).__name__, 200)
    seen = times(spec.shape_seen(image_shape))
    return f"{who}: refuses images of {seen} ({spec.layout}, {spec.dtype}): {reason}; check the data's shape and the input spec"
