"""Pairs of `.npy` files, against arrays written by hand."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from audit import data
from audit.errors import DataError

GOOD = np.zeros((2, 4, 4), np.uint8)


def save(folder: Path, images: object, labels: object, names: tuple[str, str] = ("images", "labels")) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in zip(names, (images, labels), strict=True):
        np.save(folder / f"{name}.npy", np.asarray(array))
    return folder


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, ">f4", np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_mapped_images_are_those_in_memory(tmp_path: Path, dtype: object, order: str) -> None:
    values = np.random.default_rng(0).random((6, 5, 4, 3))
    images = np.asarray(values * 255 if dtype is np.uint8 else values, dtype=dtype, order=order)
    save(tmp_path, images, [3, 1, 0, 1, 2, 0])
    np.savez(tmp_path.parent / "same.npz", images=images, labels=[3, 1, 0, 1, 2, 0])
    dataset, same = data.load(str(tmp_path)), data.load(str(tmp_path.parent / "same.npz"))
    assert dataset.image_shape == (3, 5, 4)
    assert dataset.labels.tolist() == [3, 1, 0, 1, 2, 0]
    assert dataset.ids.tolist() == same.ids.tolist()
    np.testing.assert_array_equal(dataset.images([4, 0, 4]), same.images([4, 0, 4]))
    assert len(pickle.dumps(dataset)) < 5000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(dataset)).images([5]), same.images([5]))


def test_names_of_pairs_and_parts(tmp_path: Path) -> None:
    save(tmp_path, GOOD, [0, 1], ("x_test", "y_test"))
    save(tmp_path, GOOD + 255, [1, 1], ("x_train", "y_train"))
    save(tmp_path, GOOD + 51, [2, 2], ("cats_images", "cats_labels"))
    assert data.load(str(tmp_path)).images([0]).max() == 0
    assert data.load(f"{tmp_path}#train").images([0]).max() == 1
    assert data.load(str(tmp_path / "x_train.npy")).labels.tolist() == [1, 1]
    assert data.load(str(tmp_path / "cats_images.npy")).labels.tolist() == [2, 2]
    assert len({data.load(str(tmp_path / name)).digest for name in ("x_train.npy", "x_test.npy", "cats_images.npy")}) == 3
    for wrong, sentence in (("y_train.npy", "no images file"), ("x_train.npy#train", "has no parts")):
        with pytest.raises(DataError, match=sentence):
            data.load(str(tmp_path / wrong))
    (tmp_path / "x_test.npy").unlink()
    with pytest.raises(DataError, match=r"holds no images\.npy and labels\.npy.*#train"):
        data.load(str(tmp_path))
    (tmp_path / "cats_labels.npy").unlink()
    with pytest.raises(DataError, match=r"there is no .*cats_labels\.npy"):
        data.load(str(tmp_path / "cats_images.npy"))


BAD = {
    "NaN": (np.full((2, 4, 4), np.nan), [0, 1], "image 0 holds NaN"),
    "infinity": (np.where(np.arange(32).reshape(2, 4, 4) == 20, np.inf, 0), [0, 1], "image 1 holds NaN or infinite"),
    "0-255 float": (GOOD + 255.0, [0, 1], "divide by 255"),
    "integers": (GOOD.astype(np.int16), [0, 1], "images are int16"),
    "complex": (GOOD.astype(complex), [0, 1], "images are complex128"),
    "text images": (np.full((2, 4, 4), "a"), [0, 1], "not numbers"),
    "records": (np.zeros((2, 4, 4), [("r", "u1"), ("g", "u1")]), [0, 1], "not numbers"),
    "flat": (np.zeros((2, 16)), [0, 1], r"shape \(2, 16\)"),
    "one image": (np.zeros((4, 4)), [0, 1], r"shape \(4, 4\)"),
    "no pixels": (np.zeros((2, 0, 4)), [0, 1], "no pixels"),
    "no images": (GOOD[:0], np.zeros(0, int), "no examples"),
    "no labels": (GOOD, np.zeros(0, int), "no examples"),
    "length": (GOOD, [0, 1, 2], "2 images but 3 labels"),
    "float labels": (GOOD, [0.0, 1.0], "labels are float64"),
    "text labels": (GOOD, ["a", "b"], "not numbers"),
    "one-hot": (GOOD, np.eye(2, dtype=int), "argmax"),
    "one label": (GOOD, np.int64(3), r"labels have shape \(\)"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_content_that_does_not_fit(tmp_path: Path, case: str) -> None:
    images, labels, sentence = BAD[case]
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(str(save(tmp_path, images, labels)))
    assert ".npy" in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (tmp_path / "sprung", "x"))

    for images, labels in ((GOOD, np.array([Trap(), Trap()])), (np.array([[[Trap()]]] * 2), [0, 1])):
        with pytest.raises(DataError, match=r"pickled objects"):
            data.load(str(save(tmp_path, images, labels)))
    assert not (tmp_path / "sprung").exists()


def test_damaged_headers(tmp_path: Path) -> None:
    path = save(tmp_path, GOOD, [0, 1]) / "images.npy"
    whole = path.read_bytes()
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1000000, 1000000), }\n"
    huge = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"12345"
    long = b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 20) + b" " * (1 << 20)
    negative = huge.replace(b"(2, 1000000", b"(-2,1000000")
    for content in (whole[:-1], huge, negative, long, b"", b"<html>", whole[:30], b"\x93NUMPY\x09\x00" + whole[8:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"images\.npy' (is not a NumPy array|claims shape)"):
            data.load(str(tmp_path))


def test_a_file_that_shrinks_after_loading(tmp_path: Path) -> None:
    path = save(tmp_path, np.zeros((2, 400, 400), np.uint8), [0, 1]) / "images.npy"
    dataset = data.load(str(tmp_path))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"was changed while it was in use"):
        dataset.images([1])
    path.unlink()
    with pytest.raises(DataError, match=r"there is no"):
        dataset.images([1])


def test_pipes_and_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, GOOD, [0, 1])
    (tmp_path / "labels.npy").unlink()
    os.mkfifo(tmp_path / "labels.npy")
    with pytest.raises(DataError, match=r"labels\.npy' is not a regular file"):
        data.load(str(tmp_path))

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"no permission to read '.*images\.npy'"):
        data.load(str(tmp_path))
