"""TOML files that users write, validated: every error is one sentence with the file, the line and the nearest valid name."""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

from audit.errors import InputError
from audit.text import nearest, printable, redact

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound=BaseModel)

# No file that a person writes is larger; a statement of more lines costs the later lines their numbers, not the error its place.
MOST_BYTES = 1 << 20
_MOST_LINES_OF_A_STATEMENT = 200

Place = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """TOML text read: its `values`, and `where` it came from in words (`policy release.toml`)."""

    values: Mapping[str, Any]
    text: str
    where: str

    def place(self, *keys: str | int) -> str:
        """Where a value stands, `policy release.toml, line 3`: its own line, or that of the nearest table around it."""
        lines = _lines(self.text)
        line = next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)
        return self.where if line is None else f"{self.where}, line {line}"


def read(path: Path, what: str) -> Document:
    """Read a TOML file; `what` says what it should be ("policy").

    Raises:
        InputError: it is no regular file, too large, not UTF-8 text, or not TOML.
    """
    where = f"{what} {printable(redact(str(path)))}"
    try:
        status = path.stat()
        # Reading a pipe or a device may wait, or go on, for ever.
        if not stat.S_ISREG(status.st_mode):
            kind = "folder" if stat.S_ISDIR(status.st_mode) else "pipe or device"
            raise InputError(f"{where} is a {kind}, not a file; give a TOML file")
        with path.open("rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a null character in the name is a ValueError
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is no path"
        raise InputError(f"{where} cannot be read: {reason}") from error
    if len(content) > MOST_BYTES:
        raise InputError(f"{where} is larger than {MOST_BYTES >> 20} MB; give a TOML file that a person wrote")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{where}, line {line}: it is not UTF-8 text; save it as UTF-8") from error
    return parse(text, where)


def parse(text: str, where: str) -> Document:
    """Read TOML text; `where` names it in errors.

    Raises:
        InputError: it is not TOML.
    """
    text = text.replace("\r\n", "\n")
    try:
        return Document(values=tomllib.loads(text), text=text, where=where)
    except tomllib.TOMLDecodeError as error:
        message = printable(str(error))
        found = re.search(r" \(at line (\d+), column \d+\)", message)
        place = f"{where}, line {found[1]}" if found else where
        twice = re.match(r"Cannot declare \('(\w+)',\) twice", message)
        hint = f"; where there may be several, each begins with [[{twice[1]}]]" if twice else ""
        raise InputError(f"{place}: not valid TOML: {message.replace(found[0], '') if found else message}{hint}") from error
    except RecursionError as error:
        raise InputError(f"{where} is nested too deeply; write it flat") from error
    except ValueError as error:  # Python reads no whole number of more than 4300 digits, and tomllib lets its error through
        raise InputError(f"{where}: not valid TOML: a whole number has too many digits") from error


def validate(document: Document, model: type[M]) -> M:
    """The document as an object of `model`.

    Raises:
        InputError: a field is unknown, missing or not valid; names the line, the field and the nearest valid name.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(document.values)
    except ValidationError as error:
        # An unknown name explains a missing one, and the first line is where a reader starts.
        errors = error.errors(include_url=False)
        first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
        raise InputError(_sentence(document, model, first)) from error


def _sentence(document: Document, model: type[BaseModel], error: Mapping[str, Any]) -> str:
    keys: Place = tuple(error["loc"])
    place, kind, given = document.place(*keys), str(error["type"]), error.get("input")
    field = printable(".".join(str(key) for key in keys if not isinstance(key, int)), 120)
    if kind == "extra_forbidden":
        return f"{place}: there is no field {field}{nearest(str(keys[-1]), _fields(model, keys[:-1]))}"
    if kind == "missing":
        return f"{place}: the field {field} is missing"
    if kind in {"tuple_type", "list_type"} and isinstance(given, dict) and len(keys) == 1:
        return f"{place}: write [[{field}]] with two brackets instead of [{field}], as there may be several"
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "literal_error" and isinstance(given, str):
        valid = re.findall(r"'([^']*)'", str(error["ctx"]["expected"]))
        message = f"it cannot be {printable(given, 80)!r}{nearest(given, valid)}"
    return f"{place}: {field}: {printable(message, 400)}" if field else f"{place}: {printable(message, 400)}"


def _fields(model: type[BaseModel], keys: Place) -> list[str]:
    """The fields of the table at `keys`."""
    for key in keys:
        if isinstance(key, str):
            model = _table(model.model_fields[key].annotation) or model
    return list(model.model_fields)


def _table(annotation: object) -> type[BaseModel] | None:
    """The model inside an annotation such as `tuple[Rule, ...]`."""
    from pydantic import BaseModel

    if isinstance(annotation, type) and not get_origin(annotation) and issubclass(annotation, BaseModel):
        return annotation
    inner = get_args(annotation) if get_origin(annotation) in {tuple, list, Union, UnionType} else ()
    return next((found for found in map(_table, inner) if found is not None), None)


def _lines(text: str) -> dict[Place, int]:
    """The line on which each table and key begins: statements of valid TOML are each valid TOML, so tomllib itself cuts them."""
    found: dict[Place, int] = {}
    counts: dict[Place, int] = {}
    table: Place = ()
    lines = text.split("\n")
    start = 0
    while start < len(lines):
        end, values = _statement(lines, start)
        if values is None:
            break
        header = lines[start].lstrip().startswith("[")
        if header:
            table = _header(values, counts)
            found.setdefault(table, start + 1)
        for keys in () if header else _keys(values):
            for depth in range(1, len(keys) + 1):
                found.setdefault((*table, *keys[:depth]), start + 1)
        start = end
    return found


def _statement(lines: list[str], start: int) -> tuple[int, dict[str, Any] | None]:
    for end in range(start + 1, min(len(lines), start + _MOST_LINES_OF_A_STATEMENT) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[start:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), None


def _header(values: dict[str, Any], counts: dict[Place, int]) -> Place:
    """The place that `[a.b]` or `[[a.b]]` opens; the last entry of an array of tables is meant where it names one."""
    place: Place = ()
    value: Any = values
    while isinstance(value, dict) and value:
        ((key, value),) = value.items()
        place = (*place, key)
        if isinstance(value, list):
            counts[place] = counts.get(place, -1) + 1
        if place in counts:
            place = (*place, counts[place])
    return place


def _keys(values: Mapping[str, Any]) -> list[Place]:
    """The dotted keys that a statement sets, and those of its inline tables."""
    found: list[Place] = []
    for key, value in values.items():
        inner = _keys(value) if isinstance(value, dict) else []
        found += [(key, *rest) for rest in inner] or [(key,)]
    return found
