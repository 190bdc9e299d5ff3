"""CSV manifests, against tables and images written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit import data
from audit.errors import DataError
from audit.text import printable


@pytest.fixture(autouse=True)
def pictures(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for shade, name in enumerate(("a.png", "b.png", "deep/c.png"), start=1):
        Image.new("L", (2, 1), 51 * shade).save(tmp_path / name)


def save(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "set.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_paths_labels_and_slices(tmp_path: Path) -> None:
    ref = save(tmp_path, 'path,label,camera,"day, night"\na.png,2,x,day\ndeep/c.png,0,"y, z",night\n')
    dataset = data.load(ref)
    assert dataset.ids.tolist() == ["a.png", "deep/c.png"]
    assert dataset.labels.tolist() == [2, 0]
    assert dataset.class_names == ("0", "1", "2")
    np.testing.assert_allclose(dataset.images([1, 0])[:, 0, 0, 0], [0.6, 0.2], rtol=1e-6)
    assert {name: cells.tolist() for name, cells in dataset.slices.items()} == {
        "camera": ["x", "y, z"],
        "day, night": ["day", "night"],
    }
    assert "slices camera, day, night" in dataset.source


def test_the_digest_covers_table_and_images(tmp_path: Path) -> None:
    found = {data.load(save(tmp_path, f"path,label\na.png,{label}\n")).digest for label in (0, 1)}
    Image.new("L", (2, 1), 9).save(tmp_path / "a.png")
    found.add(data.load(str(tmp_path / "set.csv")).digest)
    assert len(found) == 3


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_byte_order_mark_line_ends_and_empty_lines(tmp_path: Path, start: bytes, end: bytes) -> None:
    lines = [b"label,file_name", b"dog,a.png", b"", b"cat,b.png", b"dog,deep/c.png", b""]
    dataset = data.load(save(tmp_path, start + end.join(lines)))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.labels.tolist() == [1, 0, 1]


def test_labels_as_names_and_indices(tmp_path: Path) -> None:
    ref = save(tmp_path, "path,label\na.png,10\nb.png,2\n")
    assert data.load(ref).labels.tolist() == [10, 2]
    assert data.load(ref, class_names=["1", "2", "10"]).labels.tolist() == [2, 1]
    assert data.load(ref, class_names=list("abcdefghijk")).labels.tolist() == [10, 2]
    with pytest.raises(DataError, match=r"reach 10, but only 2"):
        data.load(ref, class_names=["x", "y"])
    ref = save(tmp_path, "path,label\na.png,10\nb.png,cat\n")
    assert data.load(ref).class_names == ("10", "cat")
    with pytest.raises(DataError, match=r"class '10' .*not among"):
        data.load(ref, class_names=["cat", "dog"])


def test_columns_can_be_named(tmp_path: Path) -> None:
    ref = save(tmp_path, "photo,kind,path\na.png,1,x\n")
    with pytest.raises(DataError, match=r"no column called label.*photo, kind, path.*#label=COLUMN"):
        data.load(ref)
    dataset = data.load(f"{ref}#image=photo,label=kind")
    assert dataset.ids.tolist() == ["a.png"]
    assert dataset.slices["path"].tolist() == ["x"]


BAD = {
    "empty": (b"", "first row must name the columns"),
    "only a header": (b"path,label\n", "no examples"),
    "no header": (b"a.png,0\nb.png,1\n", "no column called path or image.*its columns are a.png, 0.*#image=COLUMN"),
    "semicolons": (b"path;label\na.png;0\n", "its columns are path;label"),
    "two of one name": (b"path,label,path\na.png,0,x\n", "each by its own name"),
    "a column without a name": (b"path,label,\na.png,0,x\n", "each by its own name"),
    "short row": (b"path,label\na.png\n", "row 2 has 1 cells, not 2"),
    "long row": (b"path,label\na.png,0\nb.png,1,2\n", "row 3 has 3 cells, not 2"),
    "no label": (b"path,label\na.png,\n", "label of example 0 is empty"),
    "no path": (b"path,label\n,1\n", "an image has no path"),
    "twice": (b"path,label\na.png,0\na.png,1\n", "lists 'a.png' more than once"),
    "absent image": (b"path,label\nx.png,0\n", "there is no image '.*x.png'"),
    "absent images": (b"path,label\nx.png,0\na.png,1\ny.png,1\n", "2 of 3 images cannot be read: '.*x.png', '.*y.png'"),
    "a folder": (b"path,label\ndeep,0\n", "not a regular file"),
    "no text": (b"path,label\n\xff\xfe.png,0\n", "not UTF-8"),
    "UTF-16": ("path,label\na.png,0\n".encode("utf-16"), "not UTF-8"),
    "open quote": (b'path,label\n"a.png,0\n', "not a readable CSV table"),
    "huge cell": (b"path,label,x\na.png,0," + b"x" * 1001 + b"\n", "more than 1000 characters"),
    "enormous cell": (b"path,label,x\na.png,0," + b"x" * 200_000 + b"\n", "field larger than"),
    "negative label": (b"path,label\na.png,-1\n", "label -1 is negative"),
    "fraction": (b"path,label\na.png,0\nb.png,1.5\n", "label '1.5' is no class index"),
    "NaN": (b"path,label\na.png,nan\nb.png,0\n", "label 'nan' is no class index"),
    "huge label": (b"path,label\na.png,99999999999999999\n", "no class index"),
    "a label of a thousand digits": (b"path,label\na.png," + b"9" * 999 + b"\n", "no class index"),
    "long name": (b"path,label\na.png," + b"x" * 501 + b"\n", "longer than 500"),
    "null character": (b"path,label\na\0.png,0\n", "set.csv|cannot be decoded"),
    "binary": (bytes(range(256)) * 4, "not UTF-8"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_tables_that_do_not_fit(tmp_path: Path, case: str) -> None:
    content, sentence = BAD[case]
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(save(tmp_path, content))
    assert printable(str(caught.value), 10_000) == str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", ["line\nbreak.png", "\N{RIGHT-TO-LEFT OVERRIDE}gnp.png", 'comma, quote".png', "ünïcode.png"])
def test_hostile_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.png").rename(tmp_path / name)
    quoted = name.replace('"', '""')
    dataset = data.load(save(tmp_path, f'path,label\n"{quoted}",0\n'))
    assert dataset.ids.tolist() == [name]
    assert dataset.images([0]).shape == (1, 1, 1, 2)
    (tmp_path / name).unlink()
    with pytest.raises(DataError) as caught:
        data.load(str(tmp_path / "set.csv"))
    assert printable(str(caught.value), 10_000) == str(caught.value)


def test_a_cyclic_link_and_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    ref = save(tmp_path, "path,label\nloop.png,0\n")
    with pytest.raises(DataError, match=r"loop\.png"):
        data.load(ref)

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"no permission to read '.*set\.csv'"):
        data.load(ref)
