"""A folder of class folders, against pixels written by hand."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from audit import data
from audit.data.decode import MAX_PIXELS
from audit.data.image_files import read_image
from audit.errors import DataError
from audit.text import printable


def write(path: Path, values: object, mode: str | None = None, dtype: type = np.uint8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = np.array(values, dtype=dtype)
    image = Image.fromarray(array)
    assert mode is None or image.mode == mode
    image.save(path)
    return path


def png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def test_round_trip_of_names_labels_ids_and_pixels(tmp_path: Path) -> None:
    write(tmp_path / "dog" / "b.png", [[0, 51], [102, 255]])
    write(tmp_path / "cat" / "z.bmp", [[255, 0], [0, 0]])
    write(tmp_path / "cat" / "deep" / "a.tif", [[0, 0], [0, 204]])
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / ".hidden").mkdir()
    dataset = data.load(str(tmp_path))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.ids.tolist() == ["cat/deep/a.tif", "cat/z.bmp", "dog/b.png"]
    assert dataset.labels.tolist() == [0, 0, 1]
    assert dataset.image_shape == (1, 2, 2)
    images = dataset.images([2, 0])
    assert images.dtype == np.float32
    np.testing.assert_allclose(images[0, 0], [[0, 0.2], [0.4, 1]], rtol=1e-6)
    np.testing.assert_allclose(images[1, 0], [[0, 0], [0, 0.8]], rtol=1e-6)
    assert "1 other files left out" in dataset.source


def test_digest_is_that_of_the_sorted_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a" / "1.png", [[1]])
    second = write(tmp_path / "b" / "2.png", [[2]])
    text = "".join(f"7:{i} {hashlib.sha256(p.read_bytes()).hexdigest()}\n" for i, p in (("a/1.png", first), ("b/2.png", second)))
    before = data.load(str(tmp_path)).digest
    assert before == hashlib.sha256(text.encode()).hexdigest()
    write(second, [[3]])
    assert data.load(str(tmp_path)).digest != before


def test_colour_channels_come_first(tmp_path: Path) -> None:
    image = read_image(write(tmp_path / "x.png", [[[255, 0, 51]]], "RGB"))
    np.testing.assert_allclose(image, np.array([1, 0, 0.2]).reshape(3, 1, 1), rtol=1e-6)


def test_transparency_is_composited_on_white(tmp_path: Path) -> None:
    image = read_image(write(tmp_path / "x.png", [[[255, 0, 0, 0], [0, 0, 0, 255], [0, 0, 0, 51]]], "RGBA"))
    np.testing.assert_allclose(image[:, 0], [[1, 0, 0.8]] * 3, atol=1 / 255)
    grey = read_image(write(tmp_path / "y.png", [[[10, 0], [51, 255]]], "LA"))
    np.testing.assert_allclose(grey[0, 0], [1, 0.2], rtol=1e-6)


def test_palette_becomes_colour_with_its_transparent_entry_white(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 0, 255, 0, 255, 0])
    image.putdata([0, 1, 2])
    image.save(tmp_path / "plain.png")
    image.save(tmp_path / "keyed.png", transparency=1)
    np.testing.assert_array_equal(read_image(tmp_path / "plain.png")[:, 0].T, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(read_image(tmp_path / "keyed.png")[:, 0].T, [[1, 0, 0], [1, 1, 1], [0, 1, 0]])


def test_sixteen_bits_are_scaled_by_65535(tmp_path: Path) -> None:
    for name in ("x.png", "x.tif"):
        image = read_image(write(tmp_path / name, [[0, 13107, 65535]], dtype=np.uint16))
        np.testing.assert_allclose(image[0, 0], [0, 0.2, 1], rtol=1e-6)


def test_black_and_white_and_cmyk(tmp_path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "x.png")
    np.testing.assert_array_equal(read_image(tmp_path / "x.png"), [[[1, 0]]])
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "x.jpg", quality=100)
    np.testing.assert_allclose(read_image(tmp_path / "x.jpg")[:, 4, 4], [1, 0, 0], atol=0.05)


def test_grey_among_colour_is_widened(tmp_path: Path) -> None:
    write(tmp_path / "a" / "grey.png", [[51]])
    write(tmp_path / "a" / "red.png", [[[255, 0, 0]]])
    dataset = data.load(str(tmp_path))
    assert dataset.image_shape == (3, 1, 1)
    np.testing.assert_allclose(dataset.images([0, 1])[:, :, 0, 0], [[0.2, 0.2, 0.2], [1, 0, 0]], rtol=1e-6)
    assert "1 grey images" in dataset.source


def test_class_names_given_fix_the_order(tmp_path: Path) -> None:
    write(tmp_path / "10" / "x.png", [[1]])
    write(tmp_path / "2" / "x.png", [[1]])
    assert data.load(str(tmp_path)).class_names == ("10", "2")
    dataset = data.load(str(tmp_path), class_names=["1", "2", "10"])
    assert dict(zip(dataset.ids.tolist(), dataset.labels.tolist(), strict=True)) == {"10/x.png": 2, "2/x.png": 1}
    with pytest.raises(DataError, match=r"'10'.*not among"):
        data.load(str(tmp_path), class_names=["1", "2"])


def test_an_empty_class_keeps_its_index(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path / "b" / "x.png", [[1]])
    dataset = data.load(str(tmp_path))
    assert dataset.class_names == ("a", "b")
    assert dataset.labels.tolist() == [1]


@pytest.mark.parametrize("name", ["line\nbreak.png", "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe.png", "\x1b[31mred.png"])
def test_hostile_names_stay_out_of_messages_but_in_ids(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a" / name
    path.parent.mkdir()
    path.write_bytes(b"no image")
    with pytest.raises(DataError) as caught:
        data.load(str(tmp_path))
    assert printable(str(caught.value), 10_000) == str(caught.value)
    write(tmp_path / "good.png", [[1]]).rename(path)
    assert data.load(str(tmp_path)).ids.tolist() == [f"a/{name}"]


def test_bytes_that_are_no_text_become_storable_ids(tmp_path: Path) -> None:
    good = write(tmp_path / "good.png", [[1]])
    (tmp_path / "a").mkdir()
    try:
        good.rename(tmp_path / "a" / os.fsdecode(b"\xff.png"))
    except OSError:
        pytest.skip("this file system takes no such name")
    dataset = data.load(str(tmp_path))
    assert dataset.ids.tolist() == ["a/\\xff.png"]
    assert dataset.images([0]).shape == (1, 1, 1, 1)
    assert len(dataset.digest) == 64


def test_cyclic_links_end(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.png", [[1]])
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path / "a")
    dataset = data.load(str(tmp_path))
    assert dataset.class_names == ("a", "linked")
    assert dataset.ids.tolist() == ["a/x.png", "linked/x.png"]
    (tmp_path / "self").symlink_to(tmp_path / "self")
    with pytest.raises(DataError, match=r"cannot read"):
        data.load(str(tmp_path / "self"))


def test_a_link_to_nothing_and_a_pipe_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match=r"x\.png"):
        data.load(str(tmp_path))
    (tmp_path / "a" / "x.png").unlink()
    os.mkfifo(tmp_path / "a" / "x.png")
    with pytest.raises(DataError, match=r"not a regular file"):
        data.load(str(tmp_path))


def test_sizes_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.png", [[1, 2]])
    write(tmp_path / "a" / "2.png", [[1, 2]])
    write(tmp_path / "b" / "3.png", [[1], [2]])
    with pytest.raises(DataError, match=r"b/3\.png' has shape \(1, 2, 1\).*\(1, 1, 2\).*--resize"):
        data.load(str(tmp_path))


def test_an_image_that_changed_after_loading(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "1.png", [[1, 2]])
    dataset = data.load(str(tmp_path))
    write(path, [[1], [2]])
    with pytest.raises(DataError, match=r"has shape"):
        dataset.images([0])
    path.unlink()
    with pytest.raises(DataError, match=r"1\.png"):
        dataset.images([0])


@pytest.mark.parametrize("tolerated", [False, True])
def test_a_truncated_image_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerated: bool) -> None:
    # WeasyPrint sets this for the whole process: half an image would then be read as a whole one, its rest grey.
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", tolerated)
    noise = np.random.default_rng(0).integers(0, 256, (64, 64))
    for name in ("x.png", "x.jpg"):
        path = write(tmp_path / name[-3:] / "a" / name, noise)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        dataset = data.load(str(tmp_path / name[-3:]))
        with pytest.raises(DataError, match=rf"{name}' cannot be decoded.*truncated"):
            dataset.images([0])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is tolerated


def test_decompression_bombs_are_refused_before_decoding(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for width, height in ((60_000, 60_000), (10_000, 9_500), (MAX_PIXELS // 1000 + 1, 1000)):
        (tmp_path / "a" / "bomb.png").write_bytes(png_header(width, height) + b"\0\0\0\0IDAT")
        with pytest.raises(DataError, match=r"bomb\.png.*pixels"):
            data.load(str(tmp_path))


def test_animations_and_unknown_ranges_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    frames = [Image.new("L", (2, 2), shade) for shade in (0, 255)]
    frames[0].save(tmp_path / "a" / "x.tif", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match=r"2 frames"):
        data.load(str(tmp_path))
    Image.fromarray(np.zeros((2, 2), np.float32)).save(tmp_path / "a" / "x.tif")
    with pytest.raises(DataError, match=r"32 bits"):
        data.load(str(tmp_path))


def test_folders_that_hold_no_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is empty"):
        data.load(str(tmp_path))
    write(tmp_path / "x.png", [[1]])
    with pytest.raises(DataError, match=r"no class folders"):
        data.load(str(tmp_path))
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match=r"hold no images; accepted are \.png"):
        data.load(str(tmp_path))


def test_a_folder_of_parts_is_not_taken_for_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write(tmp_path / part / "a" / "x.png", [[1]])
    with pytest.raises(DataError, match=r"holds parts.*test'"):
        data.load(str(tmp_path))
    assert data.load(str(tmp_path / "test")).class_names == ("a",)
    with pytest.raises(DataError, match=r"#train"):
        data.load(f"{tmp_path / 'test'}#train")
