"""An input specification written down, so that reading it gives the same one: as options, as a sidecar file, as tags."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from audit.models.input_spec import TAG_PREFIX, InputSpec

# Keys that the model usually says itself: they are written only where somebody stated them.
_OWN = ("dtype", "outputs")


def to_options(spec: InputSpec, stated: Collection[str] = ()) -> str:
    """Return what to give as `--input-spec`, without the keys at their defaults; empty for the default specification.

    >>> to_options(InputSpec(layout="NHWC", range=(0.0, 255.0)))
    'layout=NHWC,range=0..255'
    """
    default = InputSpec()
    return ",".join(f"{key}={value}" for key, value in _texts(spec, stated).items() if getattr(spec, key) != getattr(default, key))


def to_tags(spec: InputSpec, stated: Collection[str] = ()) -> dict[str, str]:
    """Return the tags `audit.input.<key>` of a model version; `stated` are keys to write although a model says them itself."""
    return {f"{TAG_PREFIX}{key}": value for key, value in _texts(spec, stated).items()}


def to_toml(spec: InputSpec, stated: Collection[str] = (), comments: Sequence[str] = ()) -> str:
    """Return the content of a sidecar file, with comment lines above it."""
    lines = [f"# {comment}" for comment in comments]
    for key in _texts(spec, stated):
        value = getattr(spec, key)
        lines.append(f"{key} = {json.dumps(list(value) if isinstance(value, tuple) else value)}")
    return "\n".join(lines) + "\n"


def _texts(spec: InputSpec, stated: Collection[str]) -> dict[str, str]:
    texts = {
        "layout": spec.layout,
        "channels": spec.channels,
        "range": "..".join(map(_number, spec.range)),
        "mean": "/".join(map(_number, spec.mean)),
        "std": "/".join(map(_number, spec.std)),
    }
    texts |= {key: getattr(spec, key) for key in _OWN if key in stated}
    if spec.colour != "keep":
        texts["colour"] = spec.colour
    if spec.size is not None:
        texts["size"] = "{}x{}".format(*spec.size)
    return texts


def _number(value: float) -> str:
    """All digits, without `.0`."""
    return repr(float(value)).removesuffix(".0")
