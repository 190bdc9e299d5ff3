"""Sizes: what the data have, what a model declares, and one sentence when they differ."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from audit.errors import ModelError
from audit.models.input_spec import InputSpec
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
    if shape is None or (len(shape) == 3 and all(want in (None, have) for want, have in zip(shape, seen, strict=True))):
        return
    c, h, w = image_shape
    flipped = (h, w, c) if spec.layout == "NCHW" else (c, h, w)
    other = "NHWC" if spec.layout == "NCHW" else "NCHW"
    fits = len(shape) == 3 and all(want in (None, have) for want, have in zip(shape, flipped, strict=True))
    advice = f"state layout={other}" if fits else "use data of that shape, or check the input spec"
    raise ModelError(f"{who}: takes images of {times(shape)}, but the data, as {spec.layout}, are {times(seen)}; {advice}")


def times(shape: tuple[int | None, ...]) -> str:
    """`3x224x224`, with `?` for any size."""
    return "x".join("?" if size is None else str(size) for size in shape) or "no shape"


def refused(who: str, spec: InputSpec, image_shape: tuple[int, int, int], error: Exception) -> str:
    """One sentence for a model that raised on its input."""
    reason = printable(str(error).strip().split("\n")[0] or type(error).__name__, 200)
    seen = times(spec.shape_seen(image_shape))
    return f"{who}: refuses images of {seen} ({spec.layout}, {spec.dtype}): {reason}; check the data's shape and the input spec"
