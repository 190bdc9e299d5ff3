"""Class names and their order: one name per line, or JSON, in a file or in what a model states of itself."""

from __future__ import annotations

import json
from pathlib import Path

from audit.data.files import check_regular, refused, shown
from audit.data.labels import MAX_CLASSES, MAX_NAME
from audit.errors import DataError

_MAX_BYTES = 1 << 25


def read_class_names(path: Path) -> tuple[str, ...]:
    """The names by class index: the lines of a text file, or JSON in a file whose name ends in `.json`.

    Raises:
        DataError: the file cannot be read, or does not give every class from 0 on one name of its own.
    """
    where = shown(path)
    try:
        check_regular(path)
        if path.stat().st_size > _MAX_BYTES:
            raise DataError(f"{where} is too large for a list of class names; give one name per line")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise refused(path, error) from None
    except UnicodeDecodeError:
        raise DataError(f"{where} is not UTF-8 text; store the class names as UTF-8, one per line") from None
    return parse_class_names(text, where, as_json=path.suffix.lower() == ".json")


def parse_class_names(text: str, where: str, *, as_json: bool) -> tuple[str, ...]:
    """The names by class index: the lines of a text, or a JSON list, or a JSON object {index: name} or {name: index}.

    Spaces around names and empty lines at the end are left out. `where` names the text in errors.

    Raises:
        DataError: not every class from 0 on has one name of its own.

    >>> parse_class_names('{"cat": 1, "ant": 0}', "names.json", as_json=True)
    ('ant', 'cat')
    """
    names = _from_json(text, where) if as_json else [line.strip() for line in text.rstrip().split("\n")]
    if names == [""] or not names:
        raise DataError(f"{where} holds no class names; give one name per line, in the order of the class indices")
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if not name or len(name) > MAX_NAME:
            trouble = "too long" if name else "empty"
            raise DataError(f"{where}: the name of class {index} is {trouble}; give each class a short name")
        if name in seen:
            raise DataError(f"{where}: classes {seen[name]} and {index} are both called {shown(name)}; give each its own name")
        seen[name] = index
    if len(names) > MAX_CLASSES:
        raise DataError(f"{where} names {len(names)} classes, more than the {MAX_CLASSES} an audit can take; check the file")
    return tuple(names)


def _from_json(text: str, where: str) -> list[str]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise DataError(f"{where} is not valid JSON; give a list of names, or write one name per line in a .txt file") from None
    if isinstance(content, dict):
        return _by_index(content, where)
    if not isinstance(content, list) or not all(isinstance(name, str) for name in content):
        raise DataError(f'{where} must be a JSON list of names, or an object such as {{"0": "cat"}} or {{"cat": 0}}')
    return [name.strip() for name in content]


def _by_index(content: dict[str, object], where: str) -> list[str]:
    if all(isinstance(value, str) for value in content.values()):
        pairs = [(key, str(value)) for key, value in content.items()]
    elif all(isinstance(value, int) and not isinstance(value, bool) for value in content.values()):
        pairs = [(str(value), key) for key, value in content.items()]
    else:
        raise DataError(f"{where}: every value must be a name, or every value an index; write a JSON list of names instead")
    names = {key.strip(): name.strip() for key, name in pairs}
    expected = [str(index) for index in range(len(pairs))]
    if set(names) != set(expected):
        raise DataError(f"{where}: the indices must be 0 to {len(pairs) - 1}, each once; write a JSON list of names instead")
    return [names[index] for index in expected]
