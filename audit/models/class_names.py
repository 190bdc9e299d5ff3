"""The class names that a model states of itself: a tag of its version, or the metadata of its ONNX graph."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from contextlib import suppress

from audit.data.class_names import parse_class_names
from audit.errors import DataError, ModelError
from audit.text import printable

TAG = "audit.class_names"
_MAX_LENGTH = 1 << 22
# Keys that exporters are known to write, for this or something else: what does not fit is left alone.
_OTHERS = ("class_names", "classes", "labels", "names", "id2label")


def from_tags(tags: Mapping[str, str], who: str) -> tuple[str, ...]:
    """The names in the tag `audit.class_names`; empty without the tag.

    Raises:
        ModelError: the tag is no list of names.
    """
    return _parsed(tags[TAG], f"{who}: the tag {TAG}") if TAG in tags else ()


def from_metadata(metadata: Mapping[str, str], classes: int, who: str) -> tuple[str, ...]:
    """The names of all `classes` classes in the metadata of an ONNX graph; empty where none of the usual keys holds them.

    Raises:
        ModelError: the key `audit.class_names` is there, but is no list of names.

    >>> from_metadata({"names": "{0: 'ant', 1: 'bee'}"}, 2, "model")
    ('ant', 'bee')
    """
    if TAG in metadata:
        return _parsed(metadata[TAG], f"{who}: {TAG} in the graph's metadata")
    for key in _OTHERS:
        with suppress(ModelError):
            names = _parsed(metadata.get(key, ""), key)
            if len(names) == classes:
                return names
    return ()


def _parsed(text: str, where: str) -> tuple[str, ...]:
    """A JSON list or object, a Python literal of either kind, or names separated by lines or commas."""
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        raise ModelError(f"{where} is too long for a list of class names")
    try:
        if not text.startswith(("[", "{")):
            lines = text if "\n" in text else text.replace(",", "\n")
            return tuple(map(printable, parse_class_names(lines, where, as_json=False)))
        return tuple(map(printable, parse_class_names(_as_json(text), where, as_json=True)))
    except DataError as error:
        raise ModelError(str(error)) from error


def _as_json(text: str) -> str:
    """`{0: 'cat'}`, as some exporters write it, in JSON; anything else unchanged."""
    try:
        return json.dumps(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
