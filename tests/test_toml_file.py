"""TOML files of users: what is no such file is refused at once, and every error names its line and the nearest valid name."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field

from audit.errors import InputError
from audit.toml_file import MOST_BYTES, parse, read, validate


class Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int
    kind: Literal["small", "large"] = "small"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    depth: int


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    inner: Inner | None = None
    row: Annotated[tuple[Row, ...], Field(min_length=1)]


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        validate(parse(text, "file x.toml"), Whole)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_valid_text_becomes_the_object():
    found = validate(parse('name = "n"\r\n[inner]\r\ndepth = 2\r\n[[row]]\r\nsize = 1\r\n', "x"), Whole)
    assert (found.name, found.inner.depth, found.row[0].size) == ("n", 2, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "n"\n\n[[row]]\nsise = 1\n', "line 4: there is no field row.sise; did you mean size?"),
        (
            'name = "n"\n[[row]]\nsize = 1\n[[row]]\nsize = 1\nkind = "larg"\n',
            "line 6: row.kind: it cannot be 'larg'; did you mean large?",
        ),
        ('name = "n"\n[[row]]\nkind = "small"\n', "line 2: the field row.size is missing"),
        ('name = "n"\n# comment\n[row]\nsize = 1\n', "line 3: write [[row]] with two brackets instead of [row]"),
        (
            'name = "n"\n[row]\nsize = 1\n[row]\nsize = 2\n',
            "line 4: not valid TOML: Cannot declare ('row',) twice; where there may be",
        ),
        ('nam = "n"\n[[row]]\nsize = 1\n', "line 1: there is no field nam; did you mean name?"),
        ('name = "n"\ninner = { dept = 1 }\n[[row]]\nsize = 1\n', "line 2: there is no field inner.dept; did you mean depth?"),
        ('name = "n"\ninner.dept = 1\n[[row]]\nsize = 1\n', "line 2: there is no field inner.dept"),
        ('name = "n"\nrow = [\n  { size = 1 },\n  { size = "x" },\n]\n', "line 2: row.size"),
        ("name = \n", "line 1: not valid TOML: Invalid value"),
        ('name = "n"\n', "the field row is missing"),
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        (f"a = {'1' * 5000}\n", "a whole number has too many digits"),
    ],
)
def test_an_error_names_line_field_and_the_nearest_name(text, words):
    message = refused(text)
    assert words in message
    assert message.startswith("file x.toml")


def test_lines_are_those_of_the_text_whatever_stands_in_strings_and_arrays():
    text = 'name = """\n[inner]\nsize = 1\n"""\nother = [\n  "[[row]]", # ]\n]\n[[row]]\n\n["inner".x]\n\'a b\' = 1\n[row.deep]\n'
    document = parse(text, "f")
    assert document.values == tomllib.loads(text)
    places = {
        ("name",): 1,
        ("other",): 5,
        ("row", 0): 8,
        ("inner", "x", "a b"): 11,
        ("row", 0, "deep"): 12,
        ("inner", "x", "y"): 10,
    }
    for keys, line in places.items():
        assert document.place(*keys) == f"f, line {line}", keys
    assert document.place("absent") == "f"


def test_a_statement_without_end_costs_no_time_and_only_the_line():
    text = "long = [\n" + "1,\n" * 5000 + "]\nother = 1\n"
    assert parse(text, "f").place("other") == "f"


def test_what_is_no_text_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "bytes.toml").write_bytes(b'a = 1\nb = "\xff"\n')
    (tmp_path / "huge.toml").write_bytes(b"#" * (MOST_BYTES + 1))
    for path, words in (
        (tmp_path / "pipe.toml", "is a pipe or device, not a file"),
        (Path("/dev/zero"), "is a pipe or device, not a file"),
        (tmp_path, "is a folder, not a file"),
        (tmp_path / "bytes.toml", r"bytes\.toml, line 2: it is not UTF-8 text"),
        (tmp_path / "huge.toml", "larger than 1 MB"),
        (tmp_path / "absent.toml", "cannot be read: No such file"),
        (Path("nul\0l.toml"), "cannot be read"),
    ):
        with pytest.raises(InputError, match=words):
            read(path, "policy")


def test_a_byte_order_mark_is_no_content(tmp_path):
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read(path, "policy").values == {"a": 1}
