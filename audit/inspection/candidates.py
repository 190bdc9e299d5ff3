"""The input specifications worth trying on a model: the usual ways to scale pixels, in every form that has the right shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from audit.errors import InputError
from audit.models.input_spec import InputSpec
from audit.models.shapes import Form, form_of, forms

Values = tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """A usual range and normalisation; one value serves any number of channels, three are for red, green and blue."""

    name: str
    range: tuple[float, float] = (0.0, 1.0)
    mean: Values = (0.0,)
    std: Values = (1.0,)

    @property
    def per_channel(self) -> bool:
        """Whether the colour channels differ."""
        return len(self.mean) > 1 or len(self.std) > 1


BYTES = Scaling(name="0 to 255", range=(0.0, 255.0))
# Simplest first: among equals the first is named.
SCALINGS = (
    Scaling(name="0 to 1"),
    Scaling(name="-1 to 1 (mean and std 0.5)", mean=(0.5,), std=(0.5,)),
    BYTES,
    Scaling(name="ImageNet", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
    Scaling(name="CIFAR-10", mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
    Scaling(name="CIFAR-10, std averaged over images", mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
    Scaling(name="CIFAR-100", mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761)),
    Scaling(name="0 to 255 less ImageNet's mean", range=(0.0, 255.0), mean=(123.68, 116.779, 103.939)),
    Scaling(name="MNIST", mean=(0.1307,), std=(0.3081,)),
    Scaling(name="Fashion-MNIST", mean=(0.2860,), std=(0.3530,)),
)
# Numbers of grey images: tried where the data or the model are grey.
GREY = ("MNIST", "Fashion-MNIST")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A specification to try, and what to call it. `stated` marks the one that an audit would use now."""

    name: str
    spec: InputSpec
    stated: bool = False


def candidates(declared: tuple[int | None, ...] | None, image_shape: tuple[int, int, int], now: InputSpec) -> list[Candidate]:
    """Every specification to try, each once, the one in force first and then the simplest first.

    Args:
        declared: the shape of one image as the model takes it; None where it does not say.
        image_shape: (c, h, w) of the data.
        now: the specification in force; its dtype and outputs hold for all.
    """
    usual = [
        Candidate(name=_name(scaling, spec, order), spec=spec)
        for form in forms(declared, image_shape)
        for scaling in SCALINGS
        for spec, order in _specs(scaling, form, image_shape[0], now)
    ]
    try:
        now.check_channels(image_shape[0])
        current = effect(now, image_shape[0])
    except InputError:  # it will be refused when it is tried
        current = ()
    known = next((each.name for each in usual if effect(each.spec, image_shape[0]) == current), "the spec in force")
    first = Candidate(name=known, spec=now, stated=True)
    return [first, *(each for each in usual if effect(each.spec, image_shape[0]) != current)]


def _specs(scaling: Scaling, form: Form, channels: int, now: InputSpec) -> Iterator[tuple[InputSpec, str]]:
    """The scaling in one form, in each channel order that makes a difference, and the word for the order."""
    if now.dtype == "uint8" and scaling != BYTES:
        return
    spec = replace(
        now,
        layout=form.layout,  # type: ignore[arg-type]  # a key of LAYOUTS
        colour=form.colour,  # type: ignore[arg-type]  # keep, repeat or luma
        size=form.size,
        channels="RGB",
        range=scaling.range,
        mean=scaling.mean,
        std=scaling.std,
    )
    seen = spec.channels_seen(channels)
    if (scaling.per_channel and seen != 3) or (scaling.name in GREY and seen == 3 == channels):
        return
    if seen != 3 or form.colour == "repeat":
        yield spec, ""
        return
    yield spec, "RGB"
    # Numbers go with the colours they belong to; leaving them in place while the channels are swapped is as common.
    yield replace(spec, channels="BGR", mean=scaling.mean[::-1], std=scaling.std[::-1]), "BGR"
    if scaling.per_channel:
        yield replace(spec, channels="BGR"), "BGR with the numbers in RGB order"


def _name(scaling: Scaling, spec: InputSpec, order: str) -> str:
    parts = [scaling.name, order, spec.layout, *form_of(spec).options[1:]]
    return ", ".join(filter(None, parts))


def scale(spec: InputSpec, channels: int) -> Values:
    """How far each channel of the model's input moves per unit of the image, in the model's channel order."""
    low, high = spec.range
    seen = spec.channels_seen(channels)
    return tuple((high - low) / std for std in _spread(spec.std, seen))


def effect(spec: InputSpec, channels: int) -> tuple[object, ...]:
    """A key that is equal for specifications that give the model the same numbers, to six digits."""
    seen = spec.channels_seen(channels)
    offsets = tuple(
        (spec.range[0] - mean) / std for mean, std in zip(_spread(spec.mean, seen), _spread(spec.std, seen), strict=True)
    )
    numbers = tuple(float(f"{value:.6g}") for value in (*scale(spec, channels), *offsets))
    order = spec.channels if seen == 3 and spec.colour != "repeat" else "RGB"
    return (spec.layout, order, spec.colour, spec.size, spec.dtype, *numbers)


def _spread(values: Values, channels: int) -> Values:
    return values * channels if len(values) == 1 else values
