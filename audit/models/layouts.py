"""How images become what a model receives: a table of layouts, and the steps before it.

All of it but the rounding to integers is affine in the image, so a gradient arrives in the pixels of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from audit.errors import InputError

if TYPE_CHECKING:
    import torch

    from audit.models.input_spec import InputSpec

Shape = tuple[int, ...]
# Rec. 601, which Pillow's and OpenCV's conversions to grey use.
LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One arrangement.

    `shape` gives the shape of one arranged image (c, h, w). `arrange` arranges images (n, c, h, w). `image_shape` reads (c, h, w)
    back from the shape of an arranged image; None where that says too little. `channels` restricts the number of channels.
    """

    words: str
    shape: Callable[[int, int, int], Shape]
    arrange: Callable[[torch.Tensor], torch.Tensor]
    image_shape: Callable[[Shape], tuple[int, int, int]] | None = None
    channels: int | None = None


LAYOUTS: Mapping[str, Layout] = {
    "NCHW": Layout(
        words="channels first",
        shape=lambda c, h, w: (c, h, w),
        arrange=lambda x: x,
        image_shape=lambda s: (s[0], s[1], s[2]),
    ),
    "NHWC": Layout(
        words="channels last",
        shape=lambda c, h, w: (h, w, c),
        arrange=lambda x: x.permute(0, 2, 3, 1),
        image_shape=lambda s: (s[2], s[0], s[1]),
    ),
    "NHW": Layout(
        words="grey, without a channel axis",
        shape=lambda c, h, w: (h, w),
        arrange=lambda x: x[:, 0],
        image_shape=lambda s: (1, s[0], s[1]),
        channels=1,
    ),
    "NCHW1": Layout(
        words="channels first, with a last axis of one",
        shape=lambda c, h, w: (c, h, w, 1),
        arrange=lambda x: x[..., None],
        image_shape=lambda s: (s[0], s[1], s[2]),
    ),
    "NCD": Layout(
        words="channels first, each flattened row by row", shape=lambda c, h, w: (c, h * w), arrange=lambda x: x.flatten(2)
    ),
    "NDC": Layout(
        words="channels last, pixels row by row",
        shape=lambda c, h, w: (h * w, c),
        arrange=lambda x: x.flatten(2).transpose(1, 2),
    ),
    "FLAT": Layout(
        words="flattened row by row, channels first", shape=lambda c, h, w: (c * h * w,), arrange=lambda x: x.flatten(1)
    ),
    "FLAT_COLUMN": Layout(
        words="flattened column by column, channels first",
        shape=lambda c, h, w: (c * h * w,),
        arrange=lambda x: x.transpose(2, 3).flatten(1),
    ),
    "FLAT_LAST": Layout(
        words="flattened row by row, channels last",
        shape=lambda c, h, w: (c * h * w,),
        arrange=lambda x: x.permute(0, 2, 3, 1).flatten(1),
    ),
}


def fits(declared: tuple[int | None, ...] | None, seen: Shape) -> bool:
    """Whether the shape of one image suits what a model declares; None is any size, or any shape.

    >>> fits((None, 28, 28), (1, 28, 28)), fits((784,), (1, 28, 28)), fits(None, (784,))
    (True, False, True)
    """
    if declared is None:
        return True
    return len(declared) == len(seen) and all(want in (None, have) for want, have in zip(declared, seen, strict=True))


def check_channels(spec: InputSpec, channels: int) -> None:
    """Make sure colour, mean, std, channel order and layout fit images of `channels` channels.

    Raises:
        InputError: they do not.
    """
    needed = {"repeat": 1, "luma": 3}.get(spec.colour, channels)
    if channels != needed:
        raise InputError(
            f"input spec: colour={spec.colour} is for images of {_channels(needed)}, the images have {channels}; leave it out"
        )
    seen = spec.channels_seen(channels)
    for key, values in (("mean", spec.mean), ("std", spec.std)):
        if len(values) not in (1, seen):
            has = f"the images have {_channels(channels)}" if seen == channels else f"the model gets {_channels(seen)}"
            raise InputError(f"input spec: {key} has {len(values)} values, but {has}; give one value, or one per channel")
    if spec.channels == "BGR" and seen != 3:
        raise InputError(f"input spec: channels=BGR needs 3 channels, the images have {channels}; leave it out")
    wanted = LAYOUTS[spec.layout].channels
    if wanted not in (None, seen):
        raise InputError(
            f"input spec: layout={spec.layout} is for images of {_channels(wanted or 0)}, the images have {seen}; "
            "state colour=luma, or another layout"
        )


def _channels(count: int) -> str:
    return f"{count} channel{'s' * (count != 1)}"


def prepared(images: torch.Tensor, spec: InputSpec) -> torch.Tensor:
    """What a model with this specification receives for images (n, c, h, w) in [0, 1]."""
    import torch

    low, high = spec.range
    # Normalise in at least float32, so that a float16 model loses precision once, at the end.
    x = images.to(torch.float64) if spec.dtype == "float64" else images
    if spec.colour == "luma":
        x = _grey(x)
    if spec.size is not None and spec.size != tuple(x.shape[2:]):
        x = resized(x, spec.size)
    if spec.colour == "repeat":
        x = x.expand(-1, 3, -1, -1)
    if spec.channels == "BGR":
        x = x.flip(1)
    if (low, high) != (0.0, 1.0):
        x = low + x * (high - low)
    if spec.mean != (0.0,) or spec.std != (1.0,):
        mean = torch.tensor(spec.mean, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)
        std = torch.tensor(spec.std, dtype=x.dtype, device=x.device).view(1, -1, 1, 1)
        x = (x - mean) / std
    x = LAYOUTS[spec.layout].arrange(x)
    if spec.dtype == "uint8":
        x = x.round().clamp(0, 255)
    return x.to(getattr(torch, spec.dtype)).contiguous()


def stretch(spec: InputSpec, image_shape: tuple[int, int, int]) -> float:
    """The Lipschitz constant, in L2, of `prepared` on images (c, h, w), rounding left aside: the norm of its linear part.

    Its steps act on colour, on size and on each value apart, so the norms of the steps multiply.

    >>> from audit.models.input_spec import InputSpec
    >>> stretch(InputSpec(range=(0.0, 255.0), std=(51.0,)), (1, 8, 8))
    5.0
    """
    import torch

    seen = spec.channels_seen(image_shape[0])
    scales = [(spec.range[1] - spec.range[0]) / std for std in (spec.std if len(spec.std) > 1 else spec.std * seen)]
    # A grey image that is repeated reaches every channel at once.
    largest = math.hypot(*scales) if spec.colour == "repeat" else max(scales)
    if spec.colour == "luma":
        largest *= math.hypot(*LUMA)
    if spec.size is not None and spec.size != image_shape[1:]:
        for have, want in zip(image_shape[1:], spec.size, strict=True):
            largest *= float(torch.linalg.matrix_norm(_filter(have, want), 2))
    return largest


def _grey(images: torch.Tensor) -> torch.Tensor:
    import torch

    weights = torch.tensor(LUMA, dtype=images.dtype, device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


def resized(images: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Images (n, c, h, w) at another size: bilinear, averaging over the pixels it shrinks, never outside the range of the input.

    As two matrix products, since the gradient of torch's own function adds up in no fixed order on a GPU.
    """
    rows, columns = (
        _filter(have, want).to(device=images.device, dtype=images.dtype) for have, want in zip(images.shape[2:], size, strict=True)
    )
    return rows @ images @ columns.T


@lru_cache(maxsize=64)
def _filter(have: int, want: int) -> torch.Tensor:
    """The weights (want, have) of torch's own filter along one axis: what it makes of unit vectors."""
    import torch

    units = torch.eye(have, dtype=torch.float64)[None, None]  # (1, 1, position, unit)
    return torch.nn.functional.interpolate(units, size=(want, have), mode="bilinear", antialias=True)[0, 0]
