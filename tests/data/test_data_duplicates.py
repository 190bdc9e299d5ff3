"""Exact copies inside a sample and between sets, against plain comparison of all pairs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from audit import data
from audit.data.duplicates import contamination, duplicates, image_digests
from audit.errors import DataError


def save(path: Path, images: np.ndarray, labels: object) -> data.Dataset:
    np.savez(path, images=images, labels=np.asarray(labels))
    return data.load(str(path))


def test_copies_are_those_that_a_comparison_of_all_pairs_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.data.duplicates._CHUNK_BYTES", 64)
    images = np.random.default_rng(0).integers(0, 2, (60, 2, 2), dtype=np.uint8)
    dataset = save(tmp_path / "x.npz", images, np.arange(60) % 3)
    indices = np.arange(1, 60, 2)
    copies = []
    for place, index in enumerate(indices):
        earlier = [other for other in indices[:place] if (images[other] == images[index]).all()]
        if earlier:
            copies.append((index, earlier[0]))
    found = duplicates(dataset, indices)
    assert (found.images, found.copies) == (30, len(copies))
    assert found.conflicting == sum(index % 3 != other % 3 for index, other in copies)
    assert found.first == tuple((str(index), str(other)) for index, other in copies[:5])
    assert found.caution is not None
    assert found.caution.startswith(
        f"{len(copies)} of 30 images are exact copies of others in the sample, {found.conflicting} of them"
    )
    assert found.caution.endswith(f"{found.first[-1][0]} is {found.first[-1][1]}, ...")


def test_nothing_to_say() -> None:
    dataset = data.load("digits:test")
    assert duplicates(dataset, range(100)).caution is None
    assert contamination(dataset, range(100), data.load("digits:train")).found == 0


def test_contamination_counts_audited_images_once(tmp_path: Path) -> None:
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)
    audited = save(tmp_path / "a.npz", images[[0, 1, 2, 2, 3]], [0, 1, 2, 2, 3])
    train = save(tmp_path / "t.npz", images[[4, 2, 2, 0]], [4, 2, 2, 0])
    found = contamination(audited, range(5), train)
    assert (found.images, found.train_images, found.found) == (5, 4, 3)
    assert found.first == (("0", "3"), ("2", "1"), ("3", "1"))
    assert found.caution == (
        "3 of 5 audited images are also among the 4 training images, so the numbers flatter the model: 0 is 3, 2 is 1, 3 is 1"
    )
    assert contamination(audited, [1, 4], train).caution is None


def test_the_source_does_not_matter_only_the_pixels(tmp_path: Path) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    (tmp_path / "f" / "a").mkdir(parents=True)
    Image.fromarray(pixels[0]).save(tmp_path / "f" / "a" / "x.png")
    floats = save(tmp_path / "x.npz", pixels.astype(np.float32) / np.float32(255), [0])
    assert contamination(data.load(str(tmp_path / "f")), [0], floats).found == 1


def test_sets_of_different_shapes_cannot_be_compared(tmp_path: Path) -> None:
    other = save(tmp_path / "x.npz", np.zeros((1, 9, 9), np.uint8), [0])
    with pytest.raises(DataError, match=r"\(1, 9, 9\).*\(1, 8, 8\).*none can be equal"):
        contamination(data.load("digits"), [0], other)


def test_digests_depend_on_shape_and_not_on_the_sign_of_zero() -> None:
    flat, tall = np.zeros((1, 1, 1, 4), np.float32), np.zeros((1, 1, 4, 1), np.float32)
    assert image_digests(flat) != image_digests(tall)
    assert image_digests(-flat) == image_digests(flat)
    assert image_digests(flat) == [hashlib.sha256(b"1x1x4:" + bytes(16)).digest()]
