"""Folders of corrupted images in the form of CIFAR-10-C and of ImageNet-C, written by hand."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit import data
from audit.data import Resize, load_corrupted
from audit.errors import DataError

LABELS = [3, 1, 0]
# Three examples of 2 x 2 pixels in colour; the first value says which.
CLEAN = np.arange(3, dtype=np.uint8)[:, None, None, None] + np.zeros((3, 2, 2, 3), np.uint8)
# Every corrupted image has one value: 10 times the severity, and the example.
LEVELS = np.array([10 * severity + example for severity in range(1, 6) for example in range(3)], dtype=np.uint8)
IMAGES = LEVELS[:, None, None, None] + np.zeros((15, 2, 2, 3), np.uint8)


def clean_arrays(folder: Path) -> data.Dataset:
    folder.mkdir()
    np.save(folder / "images.npy", CLEAN)
    np.save(folder / "labels.npy", LABELS)
    return data.load(str(folder))


def arrays(folder: Path, kinds=("fog", "snow"), labels=LABELS * 5, images=IMAGES) -> Path:
    folder.mkdir()
    np.save(folder / "labels.npy", labels)
    for place, kind in enumerate(kinds):
        np.save(folder / f"{kind}.npy", images + np.uint8(100 * place))
    return folder


def tree(folder: Path, places, suffix=".png", value=0, size=(2, 2)) -> Path:
    """One image of a class folder and name each, of the value that its place in the list and `value` say."""
    for number, place in enumerate(places):
        path = (folder / place).with_suffix(suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((*size, 3), value + number, np.uint8)).save(path)
    return folder


PLACES = ["cat/a.png", "cat/b.png", "dog/a.png"]


def corrupted_tree(folder: Path) -> Path:
    for place, kind in enumerate(("fog", "snow")):
        for severity in range(1, 6):
            tree(folder / kind / str(severity), PLACES, ".bmp", 100 * place + 10 * severity)
    return folder


def values(found, ids, kind, severity) -> list[int]:
    images = found.images(ids, kind, severity)
    assert images.dtype == np.float32 and images.shape == (len(ids), 3, 2, 2) and (images == images[:, :1, :1, :1]).all()
    return (images[:, 0, 0, 0] * 255).round().astype(int).tolist()


@pytest.mark.parametrize("labels", [LABELS, LABELS * 5], ids=["once", "five times"])
def test_arrays_hold_five_severities_one_after_another(tmp_path, labels):
    clean = clean_arrays(tmp_path / "clean")
    found = load_corrupted(arrays(tmp_path / "c", labels=labels), clean, np.array([2, 0, 1]))
    assert found.kinds == ("fog", "snow") and found.form == "CIFAR-10-C"
    assert values(found, ["0", "2"], "fog", 1) == [10, 12]
    assert values(found, ["1"], "snow", 5) == [151]
    # Mapped: a copy to a process holds no pixels.
    copy = pickle.dumps(found)
    assert len(copy) < 3000 and values(pickle.loads(copy), ["2", "1"], "snow", 3) == [132, 131]


def test_files_are_found_by_class_folder_and_name(tmp_path):
    clean = data.load(str(tree(tmp_path / "clean", PLACES)))
    found = load_corrupted(corrupted_tree(tmp_path / "c"), clean, np.arange(3))
    assert found.kinds == ("fog", "snow") and found.form == "ImageNet-C"
    assert values(found, ["dog/a.png", "cat/a.png"], "fog", 2) == [22, 20]
    assert values(found, ["cat/b.png"], "snow", 5) == [151]
    # A manifest's paths may have more above the class folder.
    rows = "".join(f"clean/{place},{place.partition('/')[0]}\n" for place in PLACES)
    (tmp_path / "list.csv").write_text(f"path,label\n{rows}")
    again = load_corrupted(tmp_path / "c", data.load(str(tmp_path / "list.csv")), np.array([1]))
    assert values(again, ["clean/cat/b.png"], "fog", 4) == [41]


def test_only_the_files_of_the_examples_asked_for_are_needed(tmp_path):
    clean, folder = data.load(str(tree(tmp_path / "clean", PLACES))), corrupted_tree(tmp_path / "c")
    whole = load_corrupted(folder, clean, np.arange(3))
    (folder / "snow" / "5" / "dog" / "a.bmp").unlink()
    assert load_corrupted(folder, clean, np.array([0, 1])).digest != whole.digest
    with pytest.raises(DataError, match=r"there is no '.*snow/5/dog/a\.bmp'"):
        load_corrupted(folder, clean, np.array([0, 2]))


@pytest.mark.parametrize("form", ["arrays", "files"])
def test_what_the_clean_images_are_resized_to_the_corrupted_ones_are_too(tmp_path, form):
    size = Resize.parse("4x4,nearest")
    if form == "arrays":
        clean_arrays(tmp_path / "clean")
        folder, key = arrays(tmp_path / "c"), "1"
    else:
        tree(tmp_path / "clean", PLACES, size=(4, 4))
        folder, key = corrupted_tree(tmp_path / "c"), "cat/b.png"
    found = load_corrupted(folder, data.load(str(tmp_path / "clean"), resize=size), np.arange(3), size)
    images = found.images([key], "fog", 3)
    assert images.shape == (1, 3, 4, 4) and (images * 255).round().min() == 31 == (images * 255).round().max()


@pytest.mark.parametrize("form", ["arrays", "files"])
def test_one_changed_byte_changes_the_digest(tmp_path, form):
    if form == "arrays":
        clean, folder = clean_arrays(tmp_path / "clean"), arrays(tmp_path / "c")
        changed = folder / "snow.npy"
    else:
        clean, folder = data.load(str(tree(tmp_path / "clean", PLACES))), corrupted_tree(tmp_path / "c")
        changed = folder / "snow" / "4" / "cat" / "b.bmp"
    before = load_corrupted(folder, clean, np.arange(3))
    assert load_corrupted(folder, clean, np.arange(3)).digest == before.digest
    content = changed.read_bytes()
    changed.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert load_corrupted(folder, clean, np.arange(3)).digest != before.digest
    if form == "arrays":
        with pytest.raises(DataError, match="was changed while it was in use"):
            before.images(["0"], "snow", 1)


BAD_ARRAYS = {
    "labels that disagree": (
        {"labels": [3, 1, 0, 3, 2, 0, *LABELS * 3]},
        r"the data in 1 of 15 labels \(row 4: 2",
    ),
    "another order": ({"labels": [1, 3, 0] * 5}, "disagrees with the data in 10 of 15 labels"),
    "other examples": ({"labels": [3, 1] * 5}, r"holds 10 labels, but the data have 3 examples"),
    "a missing severity": ({"images": IMAGES[:12]}, r"holds 12 images, but five severities of the 3 examples are 15"),
    "another size": (
        {"images": np.zeros((15, 4, 2, 3), np.uint8)},
        r"images of shape \(3, 4, 2\).*data have \(3, 2, 2\)",
    ),
    "grey images": ({"images": np.zeros((15, 2, 2), np.uint8)}, r"images of shape \(1, 2, 2\)"),
    "flat images": ({"images": np.zeros((15, 12), np.uint8)}, r"images have shape \(15, 12\)"),
    "a strange name": ({"kinds": ("fog", "x y")}, "names a kind 'x y'"),
    "no kind": ({"kinds": ()}, r"holds labels\.npy and no <kind>\.npy"),
}


@pytest.mark.parametrize(("changes", "words"), BAD_ARRAYS.values(), ids=BAD_ARRAYS.keys())
def test_arrays_that_do_not_belong_to_the_data(tmp_path, changes, words):
    with pytest.raises(DataError, match=words):
        load_corrupted(arrays(tmp_path / "c", **changes), clean_arrays(tmp_path / "clean"), np.arange(3))


def test_damaged_arrays(tmp_path):
    clean, folder = clean_arrays(tmp_path / "clean"), arrays(tmp_path / "c")
    np.save(folder / "fog.npy", IMAGES / 255)
    with pytest.raises(DataError, match="float64 values, but corrupted images are stored as uint8"):
        load_corrupted(folder, clean, np.arange(3))
    np.save(folder / "fog.npy", IMAGES)
    (folder / "fog.npy").write_bytes((folder / "fog.npy").read_bytes()[:-1])
    with pytest.raises(DataError, match=r"fog\.npy' claims shape .*it is truncated"):
        load_corrupted(folder, clean, np.arange(3))
    (folder / "fog.npy").write_bytes(b"none")
    with pytest.raises(DataError, match="is not a NumPy array"):
        load_corrupted(folder, clean, np.arange(3))


def test_files_that_do_not_belong_to_the_data(tmp_path):
    clean, folder = data.load(str(tree(tmp_path / "clean", PLACES))), corrupted_tree(tmp_path / "c")

    def refused(words, of=clean, indices=(0, 1, 2)):
        with pytest.raises(DataError, match=words):
            load_corrupted(folder, of, np.array(indices))

    refused(r"fog/1/cat' has no image of 'cat/c\.png'", data.load(str(tree(tmp_path / "more", [*PLACES, "cat/c.png"]))), [2])
    refused("there is no class folder .*fog/1/fish'", data.load(str(tree(tmp_path / "fish", ["fish/a.png", "cat/a.png"]))), [1])
    refused(r"images of shape \(3, 2, 2\).*\(3, 5, 5\)", data.load(str(tree(tmp_path / "large", PLACES, size=(5, 5)))))
    Image.fromarray(CLEAN[0]).save(tmp_path / "flat.png")
    (tmp_path / "list.csv").write_text("path,label\nflat.png,0\nclean/cat/a.png,1\n")
    refused("example 'flat.png' has no class folder", data.load(str(tmp_path / "list.csv")), [0])
    (folder / "snow" / "3").rename(folder / "snow" / "6")
    refused("snow' has no folder for severity 3")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), "no folder of corrupted images; acc"),
        (("fog.npy",), r"it has no labels\.npy"),
        (("cat/a.png",), "accepted are"),
    ],
)
def test_folders_of_something_else(tmp_path, names, words):
    clean, folder = clean_arrays(tmp_path / "clean"), tmp_path / "c"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"")
    with pytest.raises(DataError, match=words):
        load_corrupted(folder, clean, np.arange(3))
    with pytest.raises(DataError, match=r"there is no .*did you mean"):
        load_corrupted(tmp_path / "cl", clean, np.arange(3))
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="is no folder"):
        load_corrupted(tmp_path / "file", clean, np.arange(3))
