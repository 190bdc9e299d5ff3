"""Parquet tables of encoded images, against files written by hand with pyarrow."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from audit import data
from audit.errors import DataError
from audit.text import printable

HUGGING_FACE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(shade: int, size: tuple[int, int] = (2, 1)) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", size, shade).save(buffer, "png")
    return buffer.getvalue()


def cells(shades: list[int], paths: list[str | None] | None = None) -> pa.Array:
    paths = paths or [None] * len(shades)
    return pa.array([{"bytes": png(s), "path": p} for s, p in zip(shades, paths, strict=True)], HUGGING_FACE)


def features(**columns: object) -> dict[str, str]:
    return {"huggingface": json.dumps({"info": {"features": columns}})}


def save(path: Path, metadata: dict[str, str] | None = None, rows: int = 100, **columns: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path, row_group_size=rows)
    return str(path)


def test_the_layout_of_hugging_face(tmp_path: Path) -> None:
    metadata = features(image={"_type": "Image"}, label={"_type": "ClassLabel", "names": ["cat", "dog", "emu"]})
    ref = save(tmp_path / "x.parquet", metadata, image=cells([0, 51, 255], ["c.png", "a.png", "b.png"]), label=[2, 0, 1])
    dataset = data.load(ref)
    assert dataset.ids.tolist() == ["c.png", "a.png", "b.png"]
    assert dataset.labels.tolist() == [2, 0, 1]
    assert dataset.class_names == ("cat", "dog", "emu")
    assert dataset.image_shape == (1, 1, 2)
    np.testing.assert_allclose(dataset.images([2, 0, 1, 2])[:, 0, 0, 0], [1, 0, 0.2, 1], rtol=1e-6)
    content = hashlib.sha256(Path(ref).read_bytes()).hexdigest()
    assert dataset.digest == hashlib.sha256(f"9:x.parquet {content}\n".encode()).hexdigest()
    assert dataset.slices == {}
    assert "columns image and label, with 3 images" in dataset.source


def test_further_columns_are_slices_where_they_hold_words_or_numbers(tmp_path: Path) -> None:
    ref = save(
        tmp_path / "x.parquet",
        None,
        image=cells([0, 51, 255], ["c.png", "a.png", "b.png"]),
        label=[2, 0, 1],
        camera=["left", None, "r" * 100],
        night=[True, False, True],
        hour=[3, 4, 5],
        weight=[0.1, 0.2, 0.3],
        boxes=[[1], [2], []],
    )
    slices = data.load(ref).slices
    assert {name: cells_.tolist() for name, cells_ in slices.items()} == {
        "camera": ["left", "", "r" * 60],
        "night": ["True", "False", "True"],
        "hour": ["3", "4", "5"],
    }


def test_given_names_say_which_index_a_recorded_name_has(tmp_path: Path) -> None:
    metadata = features(label={"_type": "ClassLabel", "names": ["cat", "dog", "emu"]})
    ref = save(tmp_path / "x.parquet", metadata, image=cells([0, 1]), label=[2, 0])
    dataset = data.load(ref, class_names=["emu", "ant", "cat"])
    assert dataset.labels.tolist() == [0, 2]
    assert dataset.class_names == ("emu", "ant", "cat")
    with pytest.raises(DataError, match=r"class 'cat' of .* not among"):
        data.load(ref, class_names=["emu", "dog", "ant"])
    plain = save(tmp_path / "y.parquet", image=cells([0, 1]), label=[2, 0])
    assert data.load(plain, class_names=["a", "b", "c"]).labels.tolist() == [2, 0]


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_ids_are_shard_and_row_whatever_the_row_groups(tmp_path: Path, rows: int) -> None:
    shades = list(range(0, 70, 10))
    first = save(tmp_path / "a-0.parquet", rows=rows, img=cells(shades[:4], ["same.png"] * 4), fine_label=[0, 1, 2, 3])
    save(tmp_path / "a-1.parquet", rows=rows, img=cells(shades[4:]), fine_label=[4, 5, 6])
    dataset = data.load(str(tmp_path))
    assert dataset.ids.tolist() == [*(f"a-0.parquet#{i}" for i in range(4)), *(f"a-1.parquet#{i}" for i in range(3))]
    order = np.random.default_rng(0).permutation(7)
    np.testing.assert_allclose(dataset.images(order)[:, 0, 0, 0], np.array(shades)[order] / 255, rtol=1e-6)
    for start in (0, 3, 6, 2, 5, 0):
        np.testing.assert_allclose(dataset.images([start])[:, 0, 0, 0], [shades[start] / 255], rtol=1e-6)
    assert data.load(str(tmp_path / "a-*.parquet")).ids.tolist() == dataset.ids.tolist()
    assert data.load(first).ids.tolist() == dataset.ids.tolist()[:4]
    sent = pickle.loads(pickle.dumps(dataset))
    np.testing.assert_array_equal(sent.images([5, 1]), dataset.images([5, 1]))


def test_parts_by_the_names_of_shards(tmp_path: Path) -> None:
    for number, name in enumerate(("train-00000-of-00002", "train-00001-of-00002", "test-00000-of-00001", "valid-00000-of-00001")):
        save(tmp_path / "data" / f"{name}.parquet", image=cells([number]), label=[number])
    assert data.load(str(tmp_path)).labels.tolist() == [2]
    assert "test part" in data.load(str(tmp_path)).source
    assert data.load(f"{tmp_path}#train").labels.tolist() == [0, 1]
    assert data.load(f"{tmp_path}#validation").labels.tolist() == [3]
    assert data.load(f"{tmp_path}/data/*.parquet#train").labels.tolist() == [0, 1]
    (tmp_path / "data" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match=r"several parts and no test part; name one of them \(#train, #validation\)"):
        data.load(str(tmp_path))
    with pytest.raises(DataError, match=r"no test part.*its parts are #train, #validation"):
        data.load(f"{tmp_path}#test")


def test_columns_are_found_by_type_and_usual_name(tmp_path: Path) -> None:
    pictures = pa.array([png(0), png(9)], pa.binary())
    assert data.load(save(tmp_path / "a.parquet", content=pictures, target=[1, 0])).labels.tolist() == [1, 0]
    two = {"fine_label": [1, 0], "coarse_label": [0, 0]}
    labels = {name: {"_type": "ClassLabel", "names": ["a", "b"]} for name in two}
    assert data.load(save(tmp_path / "b.parquet", features(**labels), img=cells([1, 2]), **two)).labels.tolist() == [1, 0]
    ref = save(tmp_path / "c.parquet", front=pictures, back=pa.array([png(51), png(255)], pa.large_binary()), kind=["x", "w"])
    with pytest.raises(
        DataError, match=r"several columns.*front \(binary\), back \(large_binary\), kind \(string\).*#image=COLUMN"
    ):
        data.load(ref)
    with pytest.raises(DataError, match=r"no column of labels.*#label=COLUMN"):
        data.load(f"{ref}#image=back")
    dataset = data.load(f"{ref}#image=back,label=kind")
    assert dataset.images([1]).max() == 1
    assert dataset.class_names == ("w", "x")
    assert dataset.labels.tolist() == [1, 0]
    assert data.load(f"{ref}#label=kind,image=back", class_names=["x", "v", "w"]).labels.tolist() == [0, 2]
    for wrong, sentence in (
        ("image=nix", "no column 'nix'; its columns are"),
        ("image=kind", "images must be bytes"),
        ("x=y", "no part"),
    ):
        with pytest.raises(DataError, match=sentence):
            data.load(f"{ref}#{wrong},label=kind")


def test_names_as_a_dictionary_and_dotted_columns(tmp_path: Path) -> None:
    kinds = pa.array(["b", "a", "b"]).dictionary_encode()
    dataset = data.load(save(tmp_path / "x.parquet", **{"my.image": cells([1, 2, 3])}, label=kinds))
    assert dataset.labels.tolist() == [1, 0, 1]
    np.testing.assert_allclose(dataset.images([2]).max(), 3 / 255, rtol=1e-6)


def text(content: object = None) -> pa.Array:
    return pa.array(["x", "y"]) if content is None else pa.array(content)


BAD = {
    "no image column": ({"label": [0, 1]}, "no column of image bytes; its columns are label"),
    "text images": ({"image": text(), "label": [0, 1]}, "no column of image bytes"),
    "pixels as lists": ({"image": pa.array([[[1, 2]], [[3, 4]]]), "label": [0, 1]}, "no column of image bytes"),
    "paths only": ({"image": pa.array([{"bytes": None, "path": "a"}] * 2, HUGGING_FACE), "label": [0, 1]}, "has no bytes"),
    "null image": ({"image": pa.array([None, None], HUGGING_FACE), "label": [0, 1]}, "2 of 2 images cannot be read.*no bytes"),
    "no bytes": ({"image": pa.array([b"", png(1)]), "label": [0, 1]}, "'x.parquet#0' has no bytes"),
    "no image": ({"image": pa.array([png(1), b"<html>"]), "label": [0, 1]}, "'x.parquet#1' is not a PNG"),
    "no label column": ({"image": cells([1, 2]), "name": text()}, "no column of labels"),
    "float labels": ({"image": cells([1, 2]), "label": [0.0, np.nan]}, "are double, but must be one class index"),
    "several labels": ({"image": cells([1, 2]), "label": [[0], [1]]}, "are list.*one class index"),
    "boolean labels": ({"image": cells([1, 2]), "label": [True, False]}, "are bool"),
    "hidden labels": ({"image": cells([1, 2]), "label": [-1, -1]}, "label -1 is negative"),
    "huge label": ({"image": cells([1, 2]), "label": [0, 2**62]}, "no class index"),
    "label beyond int64": ({"image": cells([1, 2]), "label": pa.array([0, 2**64 - 1], pa.uint64())}, "no class index"),
    "null label": ({"image": cells([1, 2]), "label": pa.array([0, None])}, "row 1 has no label"),
    "empty name": ({"image": cells([1, 2]), "label": ["a", ""]}, "label of example 1 is empty"),
    "numbers as text": ({"image": cells([1, 2]), "label": ["0.0", "nan"]}, "label '0.0' is no class index"),
    "no rows": ({"image": cells([]), "label": pa.array([], pa.int64())}, "no examples"),
    "sizes": ({"image": pa.array([png(1), png(1, (3, 3))]), "label": [0, 1]}, r"has shape \(1, 3, 3\).*--resize"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_content_that_does_not_fit(tmp_path: Path, case: str) -> None:
    columns, sentence = BAD[case]
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(save(tmp_path / "x.parquet", **columns))
    assert "x.parquet" in str(caught.value)


def test_names_that_do_not_reach_the_labels(tmp_path: Path) -> None:
    ref = save(tmp_path / "x.parquet", features(label={"names": ["a"], "_type": "ClassLabel"}), image=cells([1, 2]), label=[0, 1])
    with pytest.raises(DataError, match=r"reach 1, but it names only 1"):
        data.load(ref)


@pytest.mark.parametrize(
    "metadata", ["{", "[]", '{"info": 3}', '{"info": {"features": {"label": {"names": [1, 2]}}}}', "[" * 100_000]
)
def test_a_damaged_description_is_none(tmp_path: Path, metadata: str) -> None:
    ref = save(tmp_path / "x.parquet", {"huggingface": metadata}, image=cells([1, 2]), label=[0, 1])
    assert data.load(ref).class_names == ("0", "1")


def test_damaged_files_end_in_one_sentence(tmp_path: Path) -> None:
    noise = [png(int(shade)) for shade in np.random.default_rng(0).integers(0, 256, 50)]
    ref = save(tmp_path / "x.parquet", rows=10, image=pa.array(noise), label=list(range(50)))
    path, whole = Path(ref), Path(ref).read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    damaged = [
        b"",
        b"PAR1",
        b"<html>not found</html>",
        whole[: len(whole) // 2],
        whole[:-4],
        whole[1:],
        whole[:footer] + bytes(len(whole) - footer - 8) + whole[-8:],
        whole[:-8] + b"\xff\xff\xff\x7f" + b"PAR1",
        whole[:20] + b"\xff" * 200 + whole[220:],
        b"PAR1" + bytes(footer - 4) + whole[footer:],
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"x\.parquet") as caught:
            data.load(ref)
        assert printable(str(caught.value), 10_000) == str(caught.value)


def test_random_damage_never_ends_in_another_error(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    ref = save(tmp_path / "x.parquet", rows=5, image=cells(list(range(20)), [f"{i}.png" for i in range(20)]), label=list(range(20)))
    whole = np.frombuffer(Path(ref).read_bytes(), np.uint8)
    refused = 0
    for trial in range(300):
        hurt = whole.copy()
        first = len(hurt) - 900 if trial % 2 else 0  # the footer, or anywhere
        hurt[generator.integers(first, len(hurt), 3)] = generator.integers(0, 256, 3)
        Path(ref).write_bytes(hurt.tobytes())
        try:
            dataset = data.load(ref)
            dataset.images(range(len(dataset.labels)))
        except DataError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 20


def test_a_shard_that_changed_after_loading(tmp_path: Path) -> None:
    ref = save(tmp_path / "x.parquet", image=cells([1, 2, 3]), label=[0, 1, 2])
    dataset = pickle.loads(pickle.dumps(data.load(ref)))
    save(tmp_path / "x.parquet", image=cells([1]), label=[0])
    with pytest.raises(DataError, match=r"fewer rows than it claims"):
        dataset.images([2])
    Path(ref).unlink()
    with pytest.raises(DataError, match=r"there is no .*x\.parquet"):
        dataset.images([0])


def test_shards_of_different_tables(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", image=cells([1]), label=[0])
    save(tmp_path / "b.parquet", img=cells([1]), label=[0])
    with pytest.raises(DataError, match=r"b\.parquet' has other image or label columns"):
        data.load(str(tmp_path))


def test_patterns_and_pipes(tmp_path: Path) -> None:
    save(tmp_path / "one" / "x.parquet", image=cells([1]), label=[0])
    save(tmp_path / "two" / "x.parquet", image=cells([2]), label=[1])
    assert data.load(f"{tmp_path}/*/x.parquet").ids.tolist() == ["one/x.parquet#0", "two/x.parquet#0"]
    with pytest.raises(DataError, match=r"there is no"):
        data.load(f"{tmp_path}/*.parquet")
    with pytest.raises(DataError, match=r"patterns stand for \.parquet files only"):
        data.load(f"{tmp_path}/*")
    os.mkfifo(tmp_path / "pipe.parquet")
    with pytest.raises(DataError, match=r"not a regular file"):
        data.load(str(tmp_path / "pipe.parquet"))


def test_hostile_paths_in_the_table(tmp_path: Path) -> None:
    names = ["line\nbreak.png", "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"]
    dataset = data.load(save(tmp_path / "x.parquet", image=cells([1, 2], names), label=[0, 1]))
    assert dataset.ids.tolist() == names
    broken = pa.array([{"bytes": b"no image", "path": name} for name in names], HUGGING_FACE)
    with pytest.raises(DataError, match=r"2 of 2") as caught:
        data.load(save(tmp_path / "y.parquet", image=broken, label=[0, 1]))
    assert printable(str(caught.value), 10_000) == str(caught.value)
    for unusable in (["x" * 501, "y"], ["same", "same"], ["a", "a\0"], ["a", ""]):
        dataset = data.load(save(tmp_path / "z.parquet", image=cells([1, 2], unusable), label=[0, 1]))
        assert dataset.ids.tolist() == ["z.parquet#0", "z.parquet#1"]


def test_a_packed_bomb_is_refused(tmp_path: Path) -> None:
    table = pa.table({"image": pa.array([bytes(4_000_000)]), "label": [0]})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd", use_dictionary=False)
    with pytest.raises(DataError, match=r"claims 4\d{6} bytes in a row group"):
        data.load(str(tmp_path / "x.parquet"))


def test_no_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = save(tmp_path / "x.parquet", image=cells([1]), label=[0])

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("audit.data.parquet_rows.pq.ParquetFile", denied)
    with pytest.raises(DataError, match=r"no permission to read '.*x\.parquet'"):
        data.load(ref)
