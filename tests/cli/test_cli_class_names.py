"""Class names and their order as a model states them: labels follow them, whatever the names of the data sort like."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from audit.cli import cli

# The brightest of three bands is the class; sorted, the names are in another order than in the model.
NAMES = ("top", "middle", "bottom")


def banded(kind: int, shade: int) -> Image.Image:
    pixels = np.full((6, 6), 30, dtype=np.uint8)
    pixels[2 * kind : 2 * kind + 2] = 150 + shade
    return Image.fromarray(pixels)


def folder_of(root: Path, kinds: dict[str, int]) -> Path:
    for name, kind in kinds.items():
        (root / name).mkdir(parents=True)
        for shade in range(12):
            banded(kind, shade).save(root / name / f"{shade}.png")
    return root


def bands(path: Path, metadata: dict[str, str]) -> Path:
    """A graph whose scores are the sums over the three bands."""
    weight = np.zeros((36, 3), dtype=np.float32)
    for kind in range(3):
        weight.reshape(6, 6, 3)[2 * kind : 2 * kind + 2, :, kind] = 1
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["scores"])],
        "bands",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 6, 6])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, metadata)
    onnx.save(model, path)
    return path


def run(out: Path, *arguments: str):
    words = ["run", *arguments, "--no-mlflow", "--no-pdf", "--quiet", "--samples", "36", "--out", str(out)]
    return CliRunner().invoke(cli, words)


def accuracy(out: Path) -> float:
    (model,) = json.loads((out / "result.json").read_text())["models"]
    return next(record for record in model["metrics"] if record["id"] == "clean_accuracy")["outcome"]["value"]


@pytest.mark.parametrize(
    "metadata",
    [{"class_names": json.dumps(NAMES)}, {"names": str(dict(enumerate(NAMES)))}, {"audit.class_names": "top,middle,bottom"}],
)
def test_labels_follow_the_names_that_the_graph_states(tmp_path, metadata):
    data = folder_of(tmp_path / "data", {"top": 0, "middle": 1, "bottom": 2})
    found = run(tmp_path / "out", str(bands(tmp_path / "model.onnx", metadata)), "--data", str(data))
    assert found.exit_code == 0, found.output
    assert accuracy(tmp_path / "out") == 1.0
    document = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [row["name"] for row in document["data"]["classes"]] == list(NAMES)


def test_a_subset_of_the_classes_finds_its_places(tmp_path):
    data = folder_of(tmp_path / "data", {"top": 0, "bottom": 2})
    model = bands(tmp_path / "model.onnx", {"class_names": json.dumps(NAMES)})
    assert run(tmp_path / "out", str(model), "--data", str(data)).exit_code == 0
    assert accuracy(tmp_path / "out") == 1.0


def test_without_names_the_order_is_noticed_and_a_file_wins(tmp_path):
    data = folder_of(tmp_path / "data", {"top": 0, "middle": 1, "bottom": 2})
    silent = bands(tmp_path / "model.onnx", {})
    refused = run(tmp_path / "out", str(silent), "--data", str(data))
    assert refused.exit_code == 2
    assert "another order than the labels" in refused.output
    wrong = bands(tmp_path / "wrong.onnx", {"class_names": json.dumps(sorted(NAMES))})
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    given = run(tmp_path / "out2", str(wrong), "--data", str(data), "--class-names", str(tmp_path / "names.txt"))
    assert given.exit_code == 0, given.output
    assert accuracy(tmp_path / "out2") == 1.0


def test_names_that_do_not_fit_the_data_are_told(tmp_path):
    data = folder_of(tmp_path / "data", {"a": 0, "b": 1, "c": 2})
    model = bands(tmp_path / "model.onnx", {"class_names": json.dumps(NAMES)})
    assert run(tmp_path / "out", str(model), "--data", str(data)).exit_code == 0
    document = json.loads((tmp_path / "out" / "result.json").read_text())
    assert any("The model names its classes" in caution for caution in document["data"]["cautions"])
    assert [row["name"] for row in document["data"]["classes"]] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({"audit.class_names": '["top", "middle"]'}, "states 2 class names and gives 3 classes|holds"),
        ({"audit.class_names": '["top", "top", "low"]'}, "are both called"),
        ({"audit.class_names": "[[["}, "not valid JSON"),
    ],
)
def test_names_meant_for_the_audit_must_be_right(tmp_path, metadata, says):
    data = folder_of(tmp_path / "data", {"top": 0, "middle": 1, "bottom": 2})
    found = run(tmp_path / "out", str(bands(tmp_path / "model.onnx", metadata)), "--data", str(data))
    assert found.exit_code == 2
    assert re.search(says, found.output), found.output
    assert len(found.output.strip().splitlines()) == 1


def test_models_that_name_their_classes_differently_are_not_audited_together(tmp_path):
    data = folder_of(tmp_path / "data", {"top": 0, "middle": 1, "bottom": 2})
    first = bands(tmp_path / "first.onnx", {"class_names": json.dumps(NAMES)})
    second = bands(tmp_path / "second.onnx", {"class_names": json.dumps(NAMES[::-1])})
    found = run(tmp_path / "out", str(first), str(second), "--data", str(data))
    assert found.exit_code == 2
    assert "name their classes differently" in found.output
