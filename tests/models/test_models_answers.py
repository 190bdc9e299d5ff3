from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from audit.errors import ModelError
from audit.models.answers import Labels, Scores, dense, in_order, read

TABLE = [[0.1, 0.7, 0.2], [0.5, 0.25, 0.25]]


@pytest.mark.parametrize(
    "answer",
    [
        TABLE,
        np.array(TABLE),
        torch.tensor(TABLE, requires_grad=True),
        pd.DataFrame(TABLE),
        pd.DataFrame({"scores": TABLE}),
        {"anything": TABLE},
        {"logits": TABLE, "features": [[1.0, 2.0], [3.0, 4.0]]},
        {"label": ["b", "a"], "probabilities": TABLE},
        {"output_label": [1, 0], "output_probability": [dict(enumerate(row)) for row in TABLE]},
        [{"logits": row} for row in TABLE],
    ],
)
def test_scores_are_found_in_every_form(answer: object) -> None:
    found = read(answer, 2, "model")
    assert isinstance(found, Scores)
    assert torch.equal(found.values, torch.tensor(TABLE))


def test_columns_keep_their_names_and_their_order() -> None:
    found = read([{"dog": 0.2, "ant": 0.8}, {"ant": 0.4, "dog": 0.6}], 2, "model")
    assert isinstance(found, Scores) and found.names == ("dog", "ant")
    assert torch.equal(found.values, torch.tensor([[0.2, 0.8], [0.6, 0.4]]))
    table = read(pd.DataFrame(TABLE, columns=["x", "y", "z"]), 2, "model")
    assert isinstance(table, Scores) and table.names == ("x", "y", "z")


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ([2, 0], (2, 0)),
        (np.array([2.0, 0.0]), (2, 0)),
        (np.array([[2], [0]]), (2, 0)),
        (np.array([True, False]), (1, 0)),
        (["cat", "ant"], ("cat", "ant")),
        (np.array(["cat", "ant"], dtype=object), ("cat", "ant")),
        (pd.Series(["cat", "ant"]), ("cat", "ant")),
        (pd.DataFrame({"prediction": ["cat", "ant"]}), ("cat", "ant")),
        ([{"label": "cat", "score": 0.9}, {"label": "ant", "score": 0.8}], ("cat", "ant")),
        ([{"name": "cat", "score": 0.9}, {"name": "ant", "score": 0.8}], ("cat", "ant")),
        ([{"label": 2, "score": 0.9}, {"label": 0, "score": 0.8}], (2, 0)),
        ({"classes": ["cat", "ant"]}, ("cat", "ant")),
    ],
)
def test_labels_are_found_in_every_form(answer: object, labels: tuple[object, ...]) -> None:
    assert read(answer, 2, "model") == Labels(values=labels)  # type: ignore[arg-type]


def test_null_is_a_value_that_is_no_number() -> None:
    found = read([[None, 1.0], [2.0, 3.0]], 2, "model")
    assert isinstance(found, Scores) and found.values.isnan().sum() == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([-1, 1], "one whole number per image, some below 0"),
        (np.array([[-1.0], [1.0]]), "one whole number per image, some below 0"),
        ([[1.0, 2.0], [3.0]], "rows differ in length"),
        ([[1.0, 2.0]], "gives 1 answer for 2 images"),
        ([], "gives 0 answers for 2 images"),
        (np.zeros((2, 3, 4)), "shape (2, 3, 4)"),
        (np.zeros((2, 0)), "shape (2, 0)"),
        (None, "shape ()"),
        ([{"a": {}}, {"a": {}}], "holds nothing"),
        (np.array([1j, 2j]), "complex128"),
        ({}, "holds nothing"),
        ({"a": TABLE, "b": TABLE}, "gives several outputs (a, b)"),
        ({"a": [0.3, 0.9], "b": [0.1, 0.2]}, "gives several outputs (a, b)"),
        ([{"a": 1.0}, {"b": 2.0}], "different entries for different images"),
        ([["a", "b"], ["c", "d"]], "shape (2, 2)"),
        ([["a", 1.0], ["c", 2.0]], "shape (2, 2)"),
    ],
)
def test_anything_else_is_one_sentence(answer: object, says: str) -> None:
    with pytest.raises(ModelError) as error:
        read(answer, 2, "model")
    assert says in str(error.value) and str(error.value).startswith("model: ")


@pytest.mark.parametrize(
    "answer",
    [
        [0.25, -1.5],
        [[0.25], [-1.5]],
        np.array([0.25, -1.5]),
        pd.DataFrame({"score": [0.25, -1.5]}),
        {"sigmoid": [0.25, -1.5]},
        [{"score": 0.25}, {"score": -1.5}],
        {"sigmoid": [0.25, -1.5], "text": [["a", "b"], ["c", "d"]]},
    ],
)
def test_one_value_per_image_is_a_score(answer: object) -> None:
    found = read(answer, 2, "model")
    assert isinstance(found, Scores) and torch.equal(found.values, torch.tensor([[0.25], [-1.5]]))


def test_one_value_beside_labels_is_no_score_of_a_class() -> None:
    assert read({"name": ["cat", "ant"], "sure": [0.9, 0.8]}, 2, "model") == Labels(values=("cat", "ant"))
    assert read({"class_id": [2, 0], "sure": [0.9, 0.8]}, 2, "model") == Labels(values=(2, 0))
    beside = read({"sure": [0.9, 0.8], "all": TABLE}, 2, "model")
    assert isinstance(beside, Scores) and beside.values.shape == (2, 3)


def test_labels_become_one_hot_rows() -> None:
    names = ("ant", "bee", "cat")
    assert dense(Labels(values=("cat", "ant")), names, "model").tolist() == [[0, 0, 1], [1, 0, 0]]
    assert dense(Labels(values=(1, 1)), names, "model").tolist() == [[0, 1, 0], [0, 1, 0]]
    for value in (3, "dog"):
        with pytest.raises(ModelError, match=r"there are 3 classes \(ant, bee, cat\)"):
            dense(Labels(values=(value,)), names, "model")
    with pytest.raises(ModelError, match="pass --class-names"):
        dense(Labels(values=(0,)), (), "model")


def test_columns_that_come_in_another_order_are_put_back() -> None:
    first = read([{"dog": 0.8, "ant": 0.2}], 1, "model")
    later = read([{"ant": 0.9, "dog": 0.1}], 1, "model")
    assert isinstance(first, Scores)
    found = in_order(later, first.names, "model")
    assert isinstance(found, Scores) and found.names == ("dog", "ant")
    assert torch.equal(found.values, torch.tensor([[0.1, 0.9]]))
    with pytest.raises(ModelError, match="now cat, dog and now dog, ant"):
        in_order(read([{"cat": 0.9, "dog": 0.1}], 1, "model"), first.names, "model")
    with pytest.raises(ModelError, match="now in no way and now dog, ant"):
        in_order(read([[0.9, 0.1]], 1, "model"), first.names, "model")


class _Raises:
    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("first line\nsecond line")


def test_an_object_that_cannot_be_read_is_one_sentence() -> None:
    itself: dict[str, object] = {}
    itself["again"] = itself
    for answer in (_Raises(), itself, [_Raises()]):
        with pytest.raises(ModelError, match=r"^model: its answer (cannot be read|is no table of numbers|holds)") as caught:
            read(answer, 2, "model")
        assert "\n" not in str(caught.value)
