"""References: what each stands for, and the sentence for those that stand for nothing. Sampling and chunks."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from audit import data
from audit.data.files import refused
from audit.data.sampling import chunks, identity, sample, sample_digest
from audit.errors import DataError


def test_digits_are_scikit_learns(tmp_path: Path) -> None:
    bundle = load_digits()
    dataset = data.load("digits")
    np.testing.assert_array_equal(dataset.images(range(1797))[:, 0] * 16, bundle.images)
    np.testing.assert_array_equal(dataset.labels, bundle.target)
    assert dataset.image_shape == (1, 8, 8)
    assert dataset.class_names == tuple("0123456789")


def test_the_halves_of_digits_are_disjoint_and_stratified() -> None:
    whole, train, test = (data.load(name) for name in ("digits", "digits:train", "digits:test"))
    assert not set(train.ids) & set(test.ids)
    assert set(train.ids) | set(test.ids) == set(whole.ids)
    difference = np.bincount(train.labels) - np.bincount(test.labels)
    assert set(difference) <= {0, 1}
    assert len({whole.digest, train.digest, test.digest}) == 3
    row = int(test.ids[5].removeprefix("digits-"))
    np.testing.assert_array_equal(test.images([5]), whole.images([row]))
    # The split is part of published numbers, so it is pinned.
    assert test.ids[:5].tolist() == ["digits-1", "digits-2", "digits-5", "digits-8", "digits-10"]


def test_a_sample_is_seeded_nested_and_independent_of_how_the_data_are_sorted() -> None:
    dataset = data.load("digits")
    small, large = sample(dataset, 50, 7), sample(dataset, 200, 7)
    assert len(set(small)) == 50
    np.testing.assert_array_equal(small, large[:50])
    assert set(small) != set(sample(dataset, 50, 8))
    everything = sample(dataset, 10**9, 7)
    np.testing.assert_array_equal(np.sort(everything), np.arange(1797))
    np.testing.assert_array_equal(everything[:200], large)
    order = np.random.default_rng(0).permutation(1797)
    shuffled = data.arrays.ArrayDataset(
        reference="", source="", digest="", ids=dataset.ids[order], labels=dataset.labels[order], class_names=(), pixels=np.empty(0)
    )
    np.testing.assert_array_equal(shuffled.ids[sample(shuffled, 50, 7)], dataset.ids[small])


def test_the_first_part_of_a_sample_of_sorted_data_has_every_class() -> None:
    labels = np.repeat(np.arange(10), 200)
    ids = np.array([f"{label}/{index}" for index, label in enumerate(labels)])
    by_class = data.arrays.ArrayDataset(
        reference="", source="", digest="", ids=ids, labels=labels, class_names=(), pixels=np.empty(0)
    )
    assert set(labels[sample(by_class, 2000, 0)[:100]]) == set(range(10))


def test_a_sample_of_nothing_is_refused() -> None:
    dataset = data.load("digits")
    for n in (0, -1):
        with pytest.raises(DataError, match=r"at least 1"):
            sample(dataset, n, 7)


def test_samples_are_uniform() -> None:
    dataset = data.load("digits")
    drawn = np.zeros(1797)
    for seed in range(200):
        drawn[sample(dataset, 179, seed)] += 1
    # Each image is drawn Binomial(200, 0.0996) times; six standard deviations around the mean of 19.9.
    assert drawn.min() >= 1
    assert drawn.max() <= 46
    assert abs(drawn.std() - 4.23) < 0.5


@pytest.mark.parametrize("rows", [1, 7, 32, 1000])
def test_chunks_cover_the_sample_in_order_whatever_their_size(rows: int) -> None:
    dataset = data.load("digits")
    indices = sample(dataset, 100, 0)
    parts = list(chunks(dataset, indices, rows))
    assert all(len(part.positions) <= rows for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.positions for part in parts]), np.arange(100))
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), dataset.ids[indices])
    np.testing.assert_array_equal(np.concatenate([part.labels for part in parts]), dataset.labels[indices])
    np.testing.assert_array_equal(np.concatenate([part.images for part in parts]), dataset.images(indices))


def test_identity_counts_the_sample() -> None:
    dataset = data.load("digits:test")
    indices = np.flatnonzero(dataset.labels < 3)[:20]
    found = identity(dataset, indices, 4)
    assert (found.total, found.samples, found.seed, found.image_shape) == (896, 20, 4, (1, 8, 8))
    assert found.digest == dataset.digest
    assert {row.name: row.count for row in found.classes if row.count} == {
        str(label): int((dataset.labels[indices] == label).sum()) for label in range(3)
    }
    assert found.cautions == ("7 of 10 classes have no example in the sample: 3, 4, 5, 6, 7, ...",)
    assert identity(dataset, range(896), 4).sampling == "all examples"


def test_the_sample_digest_tells_ids_and_labels_apart() -> None:
    assert sample_digest(np.array(["a", "bc"]), np.array([1, 2])) == hashlib.sha256(b"1:a 1\n2:bc 2\n").hexdigest()
    alike = {
        sample_digest(np.array(ids), np.array(labels))
        for ids, labels in ((["a", "b"], [1, 2]), (["b", "a"], [1, 2]), (["a", "b"], [2, 1]))
    }
    assert len(alike) == 3


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("digts", "there is no 'digts'; did you mean 'digits'"),
        ("https://ann:secret@host/x.npz", "cannot be fetched; download it"),
        ("", "accepted are digits"),
        ("a\0b", "accepted are digits"),
        ("#train", "there is no"),
        ("x" * 5000, "cannot read"),
    ],
)
def test_references_that_stand_for_nothing(reference: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        data.load(reference)
    assert "secret" not in str(caught.value)


def test_paths_that_are_wrong(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(DataError, match=r"did you mean '.*/images'"):
        data.load(str(tmp_path / "imges"))
    with pytest.raises(DataError, match=r"did you mean '.*/images'"):
        data.load(str(tmp_path / "imges" / "deeper" / "x.npz"))
    (tmp_path / "table.txt").write_text("a,b\n")
    with pytest.raises(DataError, match=r"no known data format; accepted are digits, .*\.npz"):
        data.load(str(tmp_path / "table.txt"))
    with pytest.raises(DataError, match=r"has no parts"):
        data.load(f"{tmp_path / 'table.txt'}#train")
    with pytest.raises(DataError, match=r"no part of"):
        data.load(f"{tmp_path / 'table.txt'}#evaluation")
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"single image"):
        data.load(str(tmp_path / "x.png"))
    with pytest.raises(DataError, match=r"there is no"):
        data.load(str(tmp_path / "x.png" / "y"))


def test_a_path_may_contain_a_hash_sign(tmp_path: Path) -> None:
    np.savez(tmp_path / "run#3.npz", x=np.zeros((1, 4, 4)), y=[0], x_train=np.ones((1, 4, 4)), y_train=[0])
    assert data.load(str(tmp_path / "run#3.npz")).images([0]).max() == 0
    assert data.load(f"{tmp_path / 'run#3.npz'}#train").images([0]).max() == 1


def test_no_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 4, 4)), y=[0])

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"no permission to read '.*x\.npz'"):
        data.load(str(tmp_path / "x.npz"))
    monkeypatch.setattr("os.scandir", denied)
    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(DataError, match=r"no permission to read"):
        data.load(str(tmp_path))
    assert "input/output error" in str(refused(tmp_path, OSError(5, "Input/output error")))
