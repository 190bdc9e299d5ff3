"""Which columns of a Parquet table hold images and labels, in the layout of Hugging Face or a plain one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from audit.errors import DataError
from audit.text import printable

IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo")
LABEL_COLUMNS = ("label", "labels", "fine_label", "coarse_label", "class", "target")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns found. `nested`: the image is a struct {bytes, path}; `named`: labels are names; `class_names` if recorded.

    `slices` are further columns of words, whole numbers or truth values.
    """

    image: str
    label: str
    nested: bool
    with_path: bool
    named: bool
    class_names: tuple[str, ...] | None
    slices: tuple[str, ...]

    @property
    def leaf(self) -> str:
        """The dotted name under which the image bytes are stored."""
        return f"{self.image}.bytes" if self.nested else self.image


def find_columns(schema: Any, where: str, *, image: str | None = None, label: str | None = None) -> Columns:
    """Find the image and the label column of an Arrow schema, or check those named.

    Without names, the types recorded by Hugging Face (Image, ClassLabel) come first, then the usual names, then an image column
    that is the only one of a fitting type.

    Raises:
        DataError: a column is missing, ambiguous, or of a type that cannot be used; the columns there are listed.
    """
    if len(set(schema.names)) != len(schema.names):
        raise DataError(f"{where} has two columns of one name; give each column its own name")
    features = _features(schema.metadata)
    fields = {field.name: field for field in schema}
    listed = ", ".join(f"{printable(name, 40)} ({printable(str(field.type), 60)})" for name, field in list(fields.items())[:12])
    for given in (image, label):
        if given is not None and given not in fields:
            raise DataError(f"{where} has no column {printable(given, 60)!r}; its columns are {listed or 'none'}")
    if image is None:
        fitting = [name for name, field in fields.items() if _holds_images(field.type)]
        image = _choose(fitting, [name for name in fitting if features.get(name, {}).get("_type") == "Image"], IMAGE_COLUMNS)
        if image is None:
            trouble = "several columns that may hold the images" if fitting else "no column of image bytes"
            raise DataError(f"{where} has {trouble}; its columns are {listed or 'none'}: name the right one with #image=COLUMN")
    elif not _holds_images(fields[image].type):
        raise DataError(
            f"{where}: column {printable(image, 60)!r} is {printable(str(fields[image].type), 60)}, "
            "but images must be bytes of an image file, or a struct with a field called bytes"
        )
    if label is None:
        fitting = [name for name in fields if name != image and (name in LABEL_COLUMNS or _names(features.get(name)) is not None)]
        label = _choose(fitting, [name for name in fitting if _names(features.get(name)) is not None], LABEL_COLUMNS)
        if label is None:
            raise DataError(f"{where} has no column of labels that is clear; its columns are {listed}: name it with #label=COLUMN")
    kind = fields[label].type
    value = _value_type(kind)
    named = _is_text(value)
    if not named and not pa.types.is_integer(value):
        raise DataError(
            f"{where}: labels in column {printable(label, 60)!r} are {printable(str(kind), 60)}, "
            "but must be one class index or name per image"
        )
    kind = fields[image].type
    nested = pa.types.is_struct(kind)
    inner = [kind.field(index) for index in range(kind.num_fields)] if nested else []
    return Columns(
        image=image,
        label=label,
        nested=nested,
        with_path=any(field.name == "path" and pa.types.is_string(field.type) for field in inner),
        named=named,
        class_names=None if named else _names(features.get(label)),
        slices=tuple(name for name, field in fields.items() if name not in (image, label) and _is_slice(_value_type(field.type))),
    )


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_slice(kind: Any) -> bool:
    return bool(_is_text(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _choose(fitting: list[str], recorded: list[str], usual: tuple[str, ...]) -> str | None:
    """The one column: the only recorded one, else the first usual name among the recorded or fitting, else the only fitting one."""
    if len(recorded) == 1:
        return recorded[0]
    candidates = recorded or fitting
    named = next((name for name in usual if name in candidates), None)
    return candidates[0] if named is None and len(candidates) == 1 else named


def _holds_images(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        return any(field.name == "bytes" and _is_bytes(field.type) for field in inner)
    return _is_bytes(kind)


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _features(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Mapping[str, Any]]:
    """Hugging Face's description of the columns; empty where there is none that can be read."""
    try:
        content = json.loads((metadata or {}).get(b"huggingface", b"{}"))
        features = content["info"]["features"]
        return {name: feature for name, feature in features.items() if isinstance(feature, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _names(feature: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """The names of a ClassLabel."""
    names = (feature or {}).get("names")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) if len(set(names)) == len(names) else None
