"""Class names from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.data import read_class_names
from audit.errors import DataError


def save(tmp_path: Path, content: str | bytes, name: str = "names.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("names.txt", "cat\ndog\nemu"),
        ("names.txt", "cat\r\n dog \r\nemu\r\n\r\n"),
        ("names.txt", "\ufeffcat\ndog\nemu\n"),
        ("names.json", '["cat", "dog", "emu"]'),
        ("names.json", '{"1": "dog", "0": "cat", "2": "emu"}'),
        ("NAMES.JSON", '{"dog": 1, "emu": 2, "cat": 0}'),
    ],
)
def test_every_form_gives_the_same(tmp_path: Path, name: str, content: str) -> None:
    assert read_class_names(save(tmp_path, content, name)) == ("cat", "dog", "emu")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("n.txt", "", "holds no class names"),
        ("n.txt", "\n\n", "holds no class names"),
        ("n.txt", "a\n\nb\n", "class 1 is empty"),
        ("n.txt", "a\nb\na\n", "classes 0 and 2 are both called 'a'"),
        ("n.txt", "x" * 501, "class 0 is too long"),
        ("n.txt", b"\xff\xfe", "not UTF-8"),
        ("n.json", "a\nb", "not valid JSON"),
        ("n.json", "[" * 100_000, "not valid JSON"),
        ("n.json", "[]", "holds no class names"),
        ("n.json", "{}", "holds no class names"),
        ("n.json", "[1, 2]", "must be a JSON list of names"),
        ("n.json", "3", "must be a JSON list of names"),
        ("n.json", '{"0": "a", "2": "b"}', "must be 0 to 1, each once"),
        ("n.json", '{"a": 0, "b": 0}', "must be 0 to 1, each once"),
        ("n.json", '{"0": ["n01", "a"]}', "every value must be a name"),
        ("n.json", '{"a": true}', "every value must be a name"),
    ],
)
def test_files_that_name_no_classes(tmp_path: Path, name: str, content: str | bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        read_class_names(save(tmp_path, content, name))
    assert name in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*did you mean"):
        read_class_names(save(tmp_path, "a").with_name("name.txt"))
    with pytest.raises(DataError, match=r"not a regular file"):
        read_class_names(tmp_path)
