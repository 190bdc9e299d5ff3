"""How images in [0, 1] become what a model was trained on: size, colour, layout, channel order, range, normalisation, dtype.

A specification is data, never code. It is put together from several places, the first that names a key wins: what the user
states (keys or a file), the sidecar `model.input.toml` beside `model.onnx`, tags `audit.input.<key>` of the model version, the
model's own graph, the defaults. What the model sees is `(low + x * (high - low) - mean) / std`, per channel in the model's own
channel order, of the image at the model's own size and number of channels. Epsilon stays in the pixels of the data.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from audit import toml_file
from audit.errors import InputError
from audit.models import layouts
from audit.models.layouts import LAYOUTS
from audit.text import printable

if TYPE_CHECKING:
    import torch

TAG_PREFIX = "audit.input."
KEYS = ("layout", "channels", "range", "mean", "std", "dtype", "outputs", "colour", "size")

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER})\s*(?:\.\.|-|/|,|:)\s*({_NUMBER})$")
_SIZE = re.compile(r"^(\d{1,4})\s*x\s*(\d{1,4})$")

_LONGEST_SIDE = 4096


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """A complete specification; `PartialSpec.complete` validates what users wrote.

    `range` is (low, high), what 0 and 1 become before normalisation. `mean` and `std` have one value, or one per channel in the
    model's channel order. `outputs` says what the model returns; "auto" is settled by looking at outputs once. `colour` gives grey
    images to a colour model ("repeat"), or the luma of colour images to a grey one. `size` (h, w) is the model's own, where the
    images are resized inside the classifier (bilinear, antialiased); None leaves them as they are.
    """

    layout: Literal["NCHW", "NHWC", "NHW", "NCHW1", "NCD", "NDC", "FLAT", "FLAT_COLUMN", "FLAT_LAST"] = "NCHW"
    channels: Literal["RGB", "BGR"] = "RGB"
    range: tuple[float, float] = (0.0, 1.0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    dtype: Literal["float32", "float16", "bfloat16", "float64", "uint8"] = "float32"
    outputs: Literal["auto", "logits", "probabilities"] = "auto"
    colour: Literal["keep", "repeat", "luma"] = "keep"
    size: tuple[int, int] | None = None

    @property
    def differentiable(self) -> bool:
        """False where the model takes integers: rounding has no useful gradient."""
        return self.dtype != "uint8"

    def words(self) -> dict[str, str]:
        """Return the specification in plain words, for a manifest; colour and size only where they are set."""
        low, high = self.range
        words = {
            "layout": self.layout,
            "channels": self.channels,
            "range": f"{low:g} to {high:g}",
            "mean": "/".join(f"{value:g}" for value in self.mean),
            "std": "/".join(f"{value:g}" for value in self.std),
            "dtype": self.dtype,
            "outputs": self.outputs,
        }
        size = {} if self.size is None else {"size": "{}x{}, bilinear with antialiasing, inside the model".format(*self.size)}
        return words | ({} if self.colour == "keep" else {"colour": self.colour}) | size

    def check_channels(self, channels: int) -> None:
        """Make sure colour, mean, std, channel order and layout fit images of `channels` channels.

        Raises:
            InputError: they do not.
        """
        layouts.check_channels(self, channels)

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """Return what the model receives for images (n, c, h, w) in [0, 1]; differentiable unless dtype is uint8."""
        return layouts.prepared(images, self)

    def shape_seen(self, image_shape: tuple[int, int, int]) -> tuple[int, ...]:
        """Return the shape of one image (c, h, w) as the model receives it."""
        c, h, w = image_shape
        return LAYOUTS[self.layout].shape(self.channels_seen(c), *(self.size or (h, w)))

    def channels_seen(self, channels: int) -> int:
        """Return how many channels the model receives for images of `channels`."""
        return {"repeat": 3, "luma": 1}.get(self.colour, channels)


@dataclass(frozen=True, kw_only=True)
class PartialSpec:
    """Some keys of a specification, each with the place it came from (for error messages)."""

    values: Mapping[str, object] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)

    def over(self, weaker: PartialSpec) -> PartialSpec:
        """Return these keys, and those of `weaker` that are not set here."""
        return PartialSpec(values={**weaker.values, **self.values}, places={**weaker.places, **self.places})

    def complete(self) -> InputSpec:
        """Fill in the defaults and validate.

        Raises:
            InputError: a value is not valid; names the place, the key and the nearest valid value.
        """
        if not self.values:
            return InputSpec()
        # Only what somebody stated needs validating, and only that the package it takes.
        from pydantic import TypeAdapter, ValidationError

        values = dict(self.values)
        if values.get("dtype") == "uint8":
            values.setdefault("range", (0.0, 255.0))
        try:
            spec = TypeAdapter(InputSpec).validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = str(first["loc"][0])
            raise InputError(_explained(key, values[key], self.places.get(key, "input spec"), str(first["msg"]))) from None
        if wrong := _out_of_bounds(spec):
            raise InputError(_explained(wrong, values[wrong], self.places.get(wrong, "input spec"), ""))
        if spec.range[0] >= spec.range[1]:
            low, high = spec.range
            raise InputError(f"{self.places.get('range', 'input spec')}: range must rise, but goes from {low:g} to {high:g}")
        if spec.dtype == "uint8" and (spec.mean != (0.0,) or spec.std != (1.0,)):
            place = self.places.get("mean", self.places.get("std", "input spec"))
            raise InputError(f"{place}: mean and std do not go with dtype uint8; a model that takes integers normalises inside")
        return spec


def _out_of_bounds(spec: InputSpec) -> str | None:
    """The first key with a number that no specification has."""
    bounds = {
        "range": all(map(math.isfinite, spec.range)),
        "mean": all(map(math.isfinite, spec.mean)),
        "std": all(math.isfinite(value) and value > 0 for value in spec.std),
        "size": all(1 <= side <= _LONGEST_SIDE for side in spec.size or ()),
    }
    return next((key for key, kept in bounds.items() if not kept), None)


def is_file(text: str) -> bool:
    """Whether the user's text names a TOML file rather than stating keys."""
    return text.strip().lower().endswith(".toml")


def from_user(text: str) -> PartialSpec:
    """Read what the user stated: the path of a TOML file, or `layout=NHWC,range=0-255`.

    Raises:
        InputError: as `from_file` and `from_options`.
    """
    return from_file(Path(text.strip())) if is_file(text) else from_options([text])


def from_options(texts: Iterable[str], place: str = "input option") -> PartialSpec:
    """Read option strings such as `layout=NHWC,range=0-255,mean=0.485/0.456/0.406`; later ones win.

    Raises:
        InputError: a part is not `key=value`, or the key is unknown.

    >>> from_options(["layout=NHWC,range=0-255"]).complete().range
    (0.0, 255.0)
    """
    partial = PartialSpec()
    for text in texts:
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            key, equals, value = part.partition("=")
            if not equals:
                raise InputError(f"{place}: {printable(part)!r} is not key=value; write for example layout=NHWC,range=0-255")
            partial = _partial({key.strip(): value.strip()}, place).over(partial)
    return partial


def from_file(path: Path) -> PartialSpec:
    """Read a TOML file with the keys of `KEYS` at its top level.

    Raises:
        InputError: the file cannot be read, is not TOML, or holds an unknown key.
    """
    document = toml_file.read(path, "input spec")
    partial = PartialSpec()
    for key, value in document.values.items():
        partial = _partial({key: value}, document.place(key)).over(partial)
    return partial


def sidecar_path(model: Path) -> Path:
    """Return where the specification of a model file is looked for."""
    return model.with_suffix(".input.toml")


def from_sidecar(model: Path) -> PartialSpec:
    """Read `model.input.toml` beside `model.onnx`; empty when there is none."""
    path = sidecar_path(model)
    return from_file(path) if path.is_file() else PartialSpec()


def from_tags(tags: Mapping[str, str]) -> PartialSpec:
    """Read the tags `audit.input.<key>` of a model version; other tags are left alone.

    Raises:
        InputError: a tag under that prefix names no known key.
    """
    partial = PartialSpec()
    for tag, value in tags.items():
        if tag.startswith(TAG_PREFIX):
            partial = _partial({tag.removeprefix(TAG_PREFIX): value}, f"tag {printable(tag)}").over(partial)
    return partial


def _partial(values: Mapping[str, object], place: str) -> PartialSpec:
    read: dict[str, object] = {}
    for key, value in values.items():
        if key not in KEYS:
            raise InputError(f"{place}: there is no key {printable(key)!r}{_nearest(key, KEYS)}")
        read[key] = _read(key, value, place)
    return PartialSpec(values=read, places=dict.fromkeys(read, place))


def _read(key: str, value: object, place: str) -> object:
    if isinstance(value, str):
        convert = _FROM_TEXT.get(key)
        if convert is None:
            return _spelled(key, value.strip())
        read = convert(value.strip())
        if read is None:
            raise InputError(_explained(key, value, place, ""))
        return read
    if isinstance(value, list):
        return tuple(cast("list[object]", value))
    return (value,) if key in ("mean", "std") else value


def _range(text: str) -> tuple[float, float] | None:
    match = _RANGE.match(text)
    return None if match is None else (float(match[1]), float(match[2]))


def _numbers(text: str) -> tuple[float, ...] | None:
    parts = [part.strip() for part in text.split("/")]
    return tuple(float(part) for part in parts) if all(re.fullmatch(_NUMBER, part) for part in parts) else None


def _size(text: str) -> tuple[int, int] | None:
    match = _SIZE.match(text)
    return None if match is None else (int(match[1]), int(match[2]))


_Reader = Callable[[str], tuple[float, ...] | None]
_FROM_TEXT: Mapping[str, _Reader] = {"range": _range, "mean": _numbers, "std": _numbers, "size": _size}

_CHOICES = {
    "layout": tuple(LAYOUTS),
    "channels": ("RGB", "BGR"),
    "dtype": ("float32", "float16", "bfloat16", "float64", "uint8"),
    "outputs": ("auto", "logits", "probabilities"),
    "colour": ("keep", "repeat", "luma"),
}
_FORMS = {
    "range": "range is two numbers, low and high, such as 0-255 or -1..1",
    "mean": "mean is one number per channel, such as 0.485/0.456/0.406",
    "std": "std is one positive number per channel, such as 0.229/0.224/0.225",
    "size": "size is height and width in pixels, each up to 4096, such as 224x224",
}


def _spelled(key: str, value: str) -> str:
    """Return the valid value that differs in case only, or the value itself."""
    return next((choice for choice in _CHOICES[key] if choice.lower() == value.lower()), value)


def _explained(key: str, value: object, place: str, because: str) -> str:
    shown = repr(printable(value if isinstance(value, str) else str(value), 80))
    if key in _CHOICES:
        return f"{place}: {key} cannot be {shown}{_nearest(str(value), _CHOICES[key])}"
    detail = f" ({because})" if because else ""
    return f"{place}: {key} cannot be {shown}{detail}; {_FORMS[key]}"


def _nearest(name: str, valid: tuple[str, ...]) -> str:
    shuffled = [choice.lower() for choice in valid if sorted(choice.lower()) == sorted(name.lower())]
    matches = difflib.get_close_matches(name.lower(), shuffled or [choice.lower() for choice in valid], n=1)
    meant = next((choice for choice in valid if matches and choice.lower() == matches[0]), None)
    return (f"; did you mean {meant}?" if meant else "") + f" (one of {', '.join(valid)})"
