"""Resizing when asked, against torchvision; deep PNGs; unreadable images counted, and skipped when asked."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import resize as torchvision_resize

from audit import data
from audit.data.image_files import read_image
from audit.data.resize import MAX_SIDE, Resize
from audit.data.sampling import identity
from audit.errors import DataError, InputError

NOISE = np.random.default_rng(0).integers(0, 256, (11, 7, 3), dtype=np.uint8)


def png16(path: Path, values: object, colour: int) -> Path:
    """A 16-bit PNG of a PNG colour type: 0 grey, 2 colour, 4 grey and alpha, 6 colour and alpha."""
    array = np.array(values, dtype=">u2")
    path.parent.mkdir(parents=True, exist_ok=True)

    def part(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    rows = b"".join(b"\0" + row.tobytes() for row in array)
    header = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 16, colour, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))
    return path


@pytest.mark.parametrize("text", ["8", "8x", "0x4", "8x9,cubic", "8x9,", "-1x4", "8X9,BOX x", "99999x1", "", "1e3x4", "8x9\n8x9"])
def test_sizes_that_cannot_be_understood(text: str) -> None:
    with pytest.raises(InputError, match=r"is not HEIGHTxWIDTH|out of range"):
        Resize.parse(text)


def test_sizes() -> None:
    assert Resize.parse(" 8X9,BOX ") == Resize(height=8, width=9, method="box")
    assert Resize.parse(f"{MAX_SIDE}x1") == Resize(height=MAX_SIDE, width=1, method="bilinear")


@pytest.mark.parametrize("method", ["bilinear", "bicubic", "nearest", "box"])
@pytest.mark.parametrize("grey", [False, True])
def test_bytes_are_resized_as_torchvision_does(tmp_path: Path, method: str, grey: bool) -> None:
    values = NOISE[..., 0] if grey else NOISE
    (tmp_path / "a").mkdir()
    Image.fromarray(values).save(tmp_path / "a" / "x.png")
    dataset = data.load(str(tmp_path), resize=Resize(height=5, width=9, method=method))
    truth = np.asarray(torchvision_resize(Image.fromarray(values), [5, 9], InterpolationMode(method)), dtype=np.float32) / 255
    np.testing.assert_array_equal(dataset.images([0])[0], truth[None] if grey else truth.transpose(2, 0, 1))
    assert dataset.image_shape == (1 if grey else 3, 5, 9)
    assert dataset.source.endswith(f"resized to 5 x 9 pixels with Pillow's {method} filter")
    assert dataset.digest == data.load(str(tmp_path)).digest


def test_arrays_are_resized_alike_and_floats_stay_in_range(tmp_path: Path) -> None:
    resize = Resize(height=22, width=3, method="bicubic")
    np.savez(tmp_path / "x.npz", images=np.stack([NOISE, NOISE[::-1]]), labels=[0, 1])
    (tmp_path / "a").mkdir()
    Image.fromarray(NOISE).save(tmp_path / "a" / "x.png")
    arrays = data.load(str(tmp_path / "x.npz"), resize=resize)
    files = data.load(str(tmp_path), resize=resize)
    np.testing.assert_array_equal(arrays.images([0]), files.images([0]))
    assert arrays.image_shape == (3, 22, 3)
    digits = data.load("digits", resize=Resize(height=16, width=16, method="bicubic"))
    images = digits.images(range(50))
    assert images.shape == (50, 1, 16, 16)
    assert images.min() == 0
    assert images.max() == 1
    half = data.load("digits", resize=Resize(height=4, width=4, method="box")).images([7])
    truth = data.load("digits").images([7]).reshape(1, 1, 4, 2, 4, 2).mean(axis=(3, 5))
    np.testing.assert_allclose(half, truth, rtol=1e-6)


def test_images_of_several_sizes_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("L", (4, 4), 51).save(tmp_path / "a" / "1.png")
    Image.new("RGB", (9, 3), (255, 0, 0)).save(tmp_path / "a" / "2.png")
    with pytest.raises(DataError, match=r"--resize"):
        data.load(str(tmp_path))
    dataset = data.load(str(tmp_path), resize=Resize(height=2, width=2))
    np.testing.assert_allclose(dataset.images([0, 1])[:, :, 1, 1], [[0.2] * 3, [1, 0, 0]], rtol=1e-6)


def test_sixteen_bit_limits(tmp_path: Path) -> None:
    grey = png16(tmp_path / "g.png", [[0, 1, 255, 256, 32768, 65534, 65535]], 0)
    np.testing.assert_array_equal(
        read_image(grey)[0, 0], np.array([0, 1, 255, 256, 32768, 65534, 65535], np.float32) / np.float32(65535)
    )
    colour = png16(tmp_path / "c.png", [[[0, 255, 256], [511, 32768, 65535]]], 2)
    np.testing.assert_allclose(read_image(colour)[:, 0].T * 255, [[0, 0, 1], [1, 128, 255]], atol=1e-4)
    clear = png16(tmp_path / "a.png", [[[256, 0, 65535, 0], [256, 0, 65535, 65535]]], 6)
    np.testing.assert_allclose(read_image(clear)[:, 0].T * 255, [[255, 255, 255], [1, 0, 255]], atol=1e-4)
    faint = png16(tmp_path / "la.png", [[[256, 0], [256, 65535]]], 4)
    np.testing.assert_allclose(read_image(faint) * 255, [[[255, 1]]], atol=1e-4)


def test_sixteen_bit_colour_is_a_caution_and_sixteen_bit_grey_is_not(tmp_path: Path) -> None:
    png16(tmp_path / "x" / "a" / "g.png", [[5]], 0)
    assert data.load(str(tmp_path / "x")).cautions == ()
    png16(tmp_path / "x" / "a" / "c.png", [[[5, 6, 7]]], 2)
    dataset = data.load(str(tmp_path / "x"))
    assert dataset.image_shape == (3, 1, 1)
    assert dataset.cautions == ("1 of 2 images have 16 bits per colour value, of which the upper 8 were read",)
    assert identity(dataset, [0, 1], 0).cautions == dataset.cautions


def test_sixteen_bit_grey_is_resized_without_loss_of_depth(tmp_path: Path) -> None:
    png16(tmp_path / "a" / "g.png", [[0, 1, 2, 3], [0, 1, 2, 3]], 0)
    image = data.load(str(tmp_path), resize=Resize(height=1, width=2, method="box")).images([0])
    np.testing.assert_allclose(image[0, 0, 0] * 65535, [0.5, 2.5], rtol=1e-5)


def broken_folder(tmp_path: Path) -> Path:
    for number in range(10):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (32, 32), dtype=np.uint8)).save(path)
        if number in (2, 3, 7):
            path.write_bytes(path.read_bytes()[:600] if number == 7 else b"no image")
    return tmp_path


def test_unreadable_images_are_counted_and_named(tmp_path: Path) -> None:
    folder = broken_folder(tmp_path)
    with pytest.raises(DataError, match=r"2 of 10 images cannot be read: '.*2\.png', '.*3\.png'; the first: .*--skip-unreadable"):
        data.load(str(folder))
    for name in ("a/2.png", "b/3.png"):
        (folder / name).unlink()
    dataset = data.load(str(folder))
    with pytest.raises(DataError, match=r"7\.png' cannot be decoded.*--skip-unreadable"):
        dataset.images(range(8))


def test_unreadable_images_are_skipped_when_asked(tmp_path: Path) -> None:
    dataset = data.load(str(broken_folder(tmp_path)), skip_unreadable=True)
    assert dataset.ids.tolist() == ["a/0.png", "a/4.png", "a/6.png", "a/8.png", "b/1.png", "b/5.png", "b/9.png"]
    assert dataset.labels.tolist() == [0] * 4 + [1] * 3
    assert dataset.images(range(7)).shape == (7, 1, 32, 32)
    assert len(dataset.digest) == 64
    (caution,) = identity(dataset, range(7), 0).cautions
    assert caution == "3 of 10 images cannot be read and were skipped: a/2.png, b/3.png, b/7.png"


def test_slices_keep_step_with_the_images_that_are_left(tmp_path: Path) -> None:
    broken_folder(tmp_path)
    rows = "".join(f"{'ab'[n % 2]}/{n}.png,{n % 2},s{n}\n" for n in range(10))
    (tmp_path / "set.csv").write_text(f"path,label,slice\n{rows}")
    dataset = data.load(str(tmp_path / "set.csv"), skip_unreadable=True)
    assert dataset.slices["slice"].tolist() == [f"s{n}" for n in (0, 1, 4, 5, 6, 8, 9)]
    assert dataset.ids[2] == "a/4.png"


def test_skipping_never_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(7):
        (tmp_path / "a" / f"{number}.png").write_bytes(b"x")
    with pytest.raises(DataError, match=r"7 of 7 images cannot be read: .*4\.png', \.\.\.; .*no image is left"):
        data.load(str(tmp_path), skip_unreadable=True)
