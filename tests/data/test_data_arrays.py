"""`.npz` files, against arrays written by hand."""

from __future__ import annotations

import hashlib
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from audit import data
from audit.data.pixels import MappedPixels
from audit.errors import DataError


def save(tmp_path: Path, **arrays: object) -> str:
    path = tmp_path / "set.npz"
    np.savez(path, **arrays)
    return str(path)


def npy(shape: tuple[int, ...], content: bytes, descr: str = "|u1") -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def zipped(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return str(path)


def test_bytes_of_grey_images(tmp_path: Path) -> None:
    ref = save(tmp_path, images=np.array([[[0, 51]], [[102, 255]]], np.uint8), labels=np.array([2, 0], np.uint8))
    dataset = data.load(ref)
    assert dataset.image_shape == (1, 1, 2)
    np.testing.assert_allclose(dataset.images([1, 0]), [[[[0.4, 1]]], [[[0, 0.2]]]], rtol=1e-6)
    assert dataset.images([1]).dtype == np.float32
    assert dataset.labels.tolist() == [2, 0]
    assert dataset.labels.dtype == np.int64
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.ids.tolist() == ["0", "1"]
    assert dataset.digest == hashlib.sha256(Path(ref).read_bytes()).hexdigest()
    assert dataset.reference == ref


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_channels_first_and_last_mean_the_same(tmp_path: Path, dtype: type) -> None:
    images = np.random.default_rng(0).random((4, 3, 5, 6)).astype(dtype)
    (tmp_path / "last").mkdir()
    first = data.load(save(tmp_path, x=images, y=np.arange(4)))
    last = data.load(save(tmp_path / "last", x=images.transpose(0, 2, 3, 1), y=np.arange(4)[:, None]))
    assert first.image_shape == last.image_shape == (3, 5, 6)
    np.testing.assert_array_equal(first.images([3, 1]), images[[3, 1]].astype(np.float32))
    np.testing.assert_array_equal(last.images([3, 1]), first.images([3, 1]))
    assert last.labels.tolist() == [0, 1, 2, 3]


def test_fortran_order_and_compression(tmp_path: Path) -> None:
    images = np.random.default_rng(0).random((4, 5, 6))
    np.savez_compressed(tmp_path / "set.npz", x=np.asfortranarray(images), y=np.arange(4))
    np.testing.assert_array_equal(data.load(str(tmp_path / "set.npz")).images(range(4))[:, 0], images.astype(np.float32))


def test_plain_arrays_are_mapped_and_packed_ones_are_the_same(tmp_path: Path) -> None:
    for name, images in (
        ("bytes", np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3)),
        ("floats", np.linspace(0, 1, 32).reshape(2, 4, 4)),
    ):
        np.savez(tmp_path / f"{name}.npz", labels=[0, 1], images=images)
        np.savez_compressed(tmp_path / f"{name}-packed.npz", images=images, labels=[0, 1])
        plain, packed = data.load(str(tmp_path / f"{name}.npz")), data.load(str(tmp_path / f"{name}-packed.npz"))
        assert isinstance(plain.pixels, MappedPixels)
        assert isinstance(packed.pixels, np.ndarray)
        np.testing.assert_array_equal(plain.images([1, 0]), packed.images([1, 0]))


def test_a_change_under_our_feet_is_noticed(tmp_path: Path) -> None:
    ref = save(tmp_path, x=GOOD, y=[0, 1])
    dataset = data.load(ref)
    save(tmp_path, x=GOOD + 1, y=[0, 1])
    os.utime(ref, ns=(1, 1))
    with pytest.raises(DataError, match=r"set\.npz' was changed while it was in use"):
        dataset.images([0])


def test_parts_as_keras_stores_them(tmp_path: Path) -> None:
    ones = np.ones((2, 4, 4))
    ref = save(tmp_path, x_train=ones * 0.25, y_train=[1, 0], x_test=ones * 0.5, y_test=[0, 1])
    assert data.load(ref).images([0]).max() == 0.5
    assert data.load(f"{ref}#test").images([0]).max() == 0.5
    assert data.load(f"{ref}#train").images([0]).max() == 0.25


GOOD = np.zeros((2, 4, 4), np.uint8)
BAD = {
    "NaN": ({"x": np.full((2, 4, 4), np.nan), "y": [0, 1]}, "image 0 holds NaN"),
    "one NaN": ({"x": np.where(np.arange(32).reshape(2, 4, 4) == 20, np.inf, 0), "y": [0, 1]}, "image 1 holds NaN or infinite"),
    "0-255 float": ({"x": GOOD + 255.0, "y": [0, 1]}, "outside .0, 1.; divide by 255"),
    "normalised": ({"x": GOOD - 0.5, "y": [0, 1]}, "-0.5.*undo the normalisation"),
    "integers": ({"x": GOOD.astype(np.int64), "y": [0, 1]}, "images are int64"),
    "flat": ({"x": np.zeros((2, 16)), "y": [0, 1]}, r"shape \(2, 16\)"),
    "four channels": ({"x": np.zeros((2, 4, 8, 8)), "y": [0, 1]}, r"shape \(2, 4, 8, 8\)"),
    "ambiguous": ({"x": np.zeros((2, 3, 8, 3)), "y": [0, 1]}, "first or last"),
    "no pixels": ({"x": np.zeros((2, 0, 8)), "y": [0, 1]}, "no pixels"),
    "float labels": ({"x": GOOD, "y": [0.0, 1.0]}, "labels are float64"),
    "text labels": ({"x": GOOD, "y": ["a", "b"]}, "must be integer"),
    "negative": ({"x": GOOD, "y": [0, -1]}, "label -1 is negative"),
    "huge label": ({"x": GOOD, "y": [0, 2**62]}, "no class index"),
    "one-hot": ({"x": GOOD, "y": np.eye(2)}, "argmax"),
    "length": ({"x": GOOD, "y": [0, 1, 2]}, "2 images but 3 labels"),
    "empty": ({"x": GOOD[:0], "y": np.zeros(0, int)}, "no examples"),
    "keys": ({"pictures": GOOD, "y": [0, 1]}, "holds pictures, y, but.*images/labels or x/y or x_test/y_test"),
}


@pytest.mark.parametrize("case", BAD, ids=str)
def test_content_that_does_not_fit(tmp_path: Path, case: str) -> None:
    arrays, sentence = BAD[case]
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(save(tmp_path, **arrays))
    assert "set.npz" in str(caught.value)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (tmp_path / "sprung", "x"))

    for arrays in ({"x": GOOD, "y": np.array([Trap(), Trap()])}, {"x": np.array([Trap(), Trap()]), "y": [0, 1]}):
        with pytest.raises(DataError, match=r"pickled objects"):
            data.load(save(tmp_path, **arrays))
    assert not (tmp_path / "sprung").exists()


def test_a_huge_claim_allocates_nothing(tmp_path: Path) -> None:
    labels = npy((2,), b"\0\1")
    ref = zipped(tmp_path / "set.npz", x=npy((2, 1_000_000, 1_000_000), b"12345"), y=labels)
    with pytest.raises(DataError, match=r"claims shape.*more than the file holds"):
        data.load(ref)
    ref = zipped(tmp_path / "set.npz", x=npy((-2, 4, 4), b"12345"), y=labels)
    with pytest.raises(DataError, match=r"claims shape"):
        data.load(ref)


def test_a_bomb_is_refused_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.data.npz.MAX_UNPACKED_BYTES", 1 << 16)
    path = tmp_path / "set.npz"
    np.savez_compressed(path, x=np.zeros((2, 200, 200), np.uint8), y=[0, 1])
    with pytest.raises(DataError, match=r"unpacks to"):
        data.load(str(path))


def test_damaged_archives(tmp_path: Path) -> None:
    path = Path(save(tmp_path, x=np.random.default_rng(0).random((20, 8, 8)), y=np.arange(20)))
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"<html>not found</html>", b"", whole[:300] + b"\xff" * 50 + whole[350:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"set\.npz"):
            data.load(str(path))
    zipped(path, x=b"not an array", y=npy((2,), b"\0\1"))
    with pytest.raises(DataError, match=r"not a NumPy array"):
        data.load(str(path))
    buffer = io.BytesIO()
    np.save(buffer, GOOD)
    zipped(path, x=buffer.getvalue()[:-8], y=npy((2,), b"\0\1"))
    with pytest.raises(DataError, match=r"truncated|more than the file holds"):
        data.load(str(path))
