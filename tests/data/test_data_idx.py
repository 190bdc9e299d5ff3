"""MNIST-style idx files, against bytes written by hand."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from audit import data
from audit.data.idx import FASHION_NAMES
from audit.errors import DataError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
# Two images of one row and two columns; the format is big-endian.
IMAGES = bytes.fromhex("00000803 00000002 00000001 00000002") + bytes([0, 51, 102, 255])
LABELS = bytes.fromhex("00000801 00000002") + bytes([3, 1])


def write(folder: Path, images: bytes = IMAGES, labels: bytes = LABELS, part: str = "t10k", packed: bool = False) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
        path = folder / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(content) if packed else content)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_round_trip(tmp_path: Path, packed: bool) -> None:
    dataset = data.load(str(write(tmp_path, packed=packed)))
    assert dataset.image_shape == (1, 1, 2)
    np.testing.assert_allclose(dataset.images([1, 0])[:, 0, 0], [[0.4, 1], [0, 0.2]], rtol=1e-6)
    assert dataset.images([0]).dtype == np.float32
    assert dataset.labels.tolist() == [3, 1]
    assert dataset.ids.tolist() == ["t10k-0", "t10k-1"]
    assert dataset.class_names == ("0", "1", "2", "3")


def test_parts_and_single_files(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"no train-images-idx3-ubyte"):
        data.load(f"{tmp_path}#train")
    write(tmp_path, labels=LABELS[:-1] + b"\0", part="train", packed=True)
    assert data.load(f"{tmp_path}#train").labels.tolist() == [3, 0]
    assert data.load(f"{tmp_path}#test").labels.tolist() == [3, 1]
    assert data.load(str(tmp_path / "train-images-idx3-ubyte.gz")).ids.tolist() == ["train-0", "train-1"]
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match=r"holds no t10k-images-idx3-ubyte.*#train"):
        data.load(str(tmp_path))


def test_digest_is_over_both_files(tmp_path: Path) -> None:
    names = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    text = "".join(f"22:{n} {hashlib.sha256(c).hexdigest()}\n" for n, c in zip(names, (IMAGES, LABELS), strict=True))
    assert data.load(str(write(tmp_path))).digest == hashlib.sha256(text.encode()).hexdigest()


def test_fashion_mnist_is_known_by_name_or_labels(tmp_path: Path) -> None:
    for name in ("fashion-mnist", "FashionMNIST/raw", "Fashion_MNIST-small"):
        assert data.load(str(write(tmp_path / name))).class_names == FASHION_NAMES
    assert data.load(str(write(tmp_path / "mnist"))).class_names[3] == "3"
    given = data.load(str(tmp_path / "mnist"), class_names=list("abcd"))
    assert given.class_names == ("a", "b", "c", "d")
    with pytest.raises(DataError, match=r"reach 3, but only 2"):
        data.load(str(tmp_path / "mnist"), class_names=["a", "b"])
    with pytest.raises(DataError, match=r"not all different"):
        data.load(str(tmp_path / "mnist"), class_names=list("aabb"))


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist_under_another_name(tmp_path: Path) -> None:
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        (tmp_path / name).symlink_to(DEBIAN / name)
    dataset = data.load(str(tmp_path))
    assert dataset.class_names == FASHION_NAMES
    assert np.bincount(dataset.labels).tolist() == [1000] * 10
    raw = gzip.decompress((DEBIAN / "t10k-images-idx3-ubyte.gz").read_bytes())
    third = np.frombuffer(raw, np.uint8, count=784, offset=16 + 2 * 784).reshape(28, 28)
    np.testing.assert_allclose(dataset.images([2])[0, 0], third / 255, rtol=1e-6)
    assert dataset.labels[2] == 1  # a pair of trousers


BAD = {
    "truncated": (IMAGES[:-1], LABELS, "claims 2 x 1 x 2 bytes, more|truncated"),
    "short header": (IMAGES[:9], LABELS, "ends inside its header"),
    "empty": (b"", LABELS, "starts with nothing"),
    "magic": (b"\0\0\x0d\x03" + IMAGES[4:], LABELS, "no idx file of images: it starts with 00000d03, not 00000803"),
    "html": (b"<html>not found</html>", LABELS, "no idx file"),
    "labels for images": (LABELS, LABELS, "no idx file of images"),
    "images for labels": (IMAGES, IMAGES, "labels.*no idx file of labels"),
    "too long": (IMAGES + b"\0", LABELS, "1 bytes more|longer"),
    "huge": (IMAGES[:4] + b"\xff" * 12 + b"\0", LABELS, "more than the file can hold"),
    "lengths": (IMAGES, LABELS[:4] + b"\0\0\0\1" + b"\0", "2 images but 1 labels"),
    "no examples": (IMAGES[:4] + bytes(4) + IMAGES[8:16], LABELS[:4] + bytes(4), "no examples"),
    "no pixels": (IMAGES[:8] + bytes(8), LABELS, "no pixels"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", BAD, ids=str)
def test_damaged_files(tmp_path: Path, case: str, packed: bool) -> None:
    images, labels, sentence = BAD[case]
    write(tmp_path, images, labels, packed=packed)
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(str(tmp_path))
    assert "t10k-" in str(caught.value)


def test_damaged_gzip(tmp_path: Path) -> None:
    path = write(tmp_path, packed=True) / "t10k-images-idx3-ubyte.gz"
    packed = path.read_bytes()
    for damaged in (packed[:-9], packed[:20], packed[:-8] + b"\0" * 8):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz' is truncated, damaged"):
            data.load(str(tmp_path))
    path.write_bytes(IMAGES)
    with pytest.raises(DataError, match=r"no gzip file .Not a gzipped file"):
        data.load(str(tmp_path))


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.data.idx.MAX_UNPACKED_BYTES", 1000)
    write(tmp_path, IMAGES[:4] + (2).to_bytes(4, "big") + (100).to_bytes(4, "big") * 2 + bytes(20000), packed=True)
    with pytest.raises(DataError, match=r"unpack it first"):
        data.load(str(tmp_path))


def test_labels_must_lie_beside(tmp_path: Path) -> None:
    (write(tmp_path) / "t10k-labels-idx1-ubyte").rename(tmp_path / "t10k-label-idx1-ubyte")
    with pytest.raises(DataError, match=r"there is no .*t10k-labels-idx1-ubyte.*did you mean .*t10k-label-idx1-ubyte"):
        data.load(str(tmp_path))
    with pytest.raises(DataError, match=r"no images file by its name"):
        data.load(str(tmp_path / "t10k-label-idx1-ubyte"))
