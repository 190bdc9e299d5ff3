from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "sinks"))
import mlflow_sample as sample

from audit import records
from audit.errors import InputError
from audit.records.folder import read_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sample.folder(tmp_path / "out dir", sample.result())


def test_folder_and_file_name_the_same_result(folder: Path) -> None:
    assert read_folder(folder) == read_folder(folder / "result.json") == sample.result()
    assert records.find(str(folder)) == records.find(str(folder / "result.json")) == (sample.result(), folder)


def test_every_truncation_is_one_sentence(folder: Path) -> None:
    whole = (folder / "result.json").read_bytes()
    for length in range(0, len(whole) - 2, 211):
        (folder / "result.json").write_bytes(whole[:length])
        with pytest.raises(InputError, match="not whole JSON"):
            read_folder(folder)


def edited(folder: Path, **changes: object) -> None:
    file = folder / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_version": 2}, "schema version 2, and this version of the tool reads up to 1; upgrade it"),
        ({"schema_version": 0}, "never existed"),
        ({"schema_version": "1"}, "not an audit result"),
        ({"schema_version": True}, "not an audit result"),
        ({"models": 3}, "does not keep schema version 1: models:"),
        ({"profile": None}, "profile"),
    ],
)
def test_wrong_documents(folder: Path, changes: dict[str, object], words: str) -> None:
    edited(folder, **changes)
    with pytest.raises(InputError) as caught:
        read_folder(folder)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_value_that_is_not_finite_is_refused(folder: Path) -> None:
    file = folder / "result.json"
    file.write_text(file.read_text().replace('"value": 0.96', '"value": NaN'))
    with pytest.raises(InputError, match="does not keep schema version 1"):
        read_folder(folder)


@pytest.mark.parametrize("text", ["[1, 2]", "{}", "null", "<html>", "[" * 100_000])
def test_other_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError):
        read_folder(tmp_path)


def test_binary_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x80\xff\x00")
    with pytest.raises(InputError, match="not a text file"):
        read_folder(tmp_path / "model.onnx")


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        read_folder(tmp_path / "a" / "b")
    with pytest.raises(InputError, match=r"there is no result\.json in"):
        read_folder(tmp_path)
    (tmp_path / "result.json.partial").write_text("{")
    with pytest.raises(InputError, match="was stopped while it wrote"):
        read_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_no_permission(folder: Path) -> None:
    (folder / "result.json").chmod(0)
    with pytest.raises(InputError, match="check its permissions"):
        read_folder(folder)


@pytest.mark.parametrize("text", ["runs:/abc", "models:/digits/1", "https://ann:hunter2@host/x"])
def test_find_names_folders_only(text: str) -> None:
    with pytest.raises(InputError, match="not a folder on this machine") as caught:
        records.find(text)
    assert "hunter2" not in str(caught.value)
