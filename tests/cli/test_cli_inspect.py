"""`audit inspect` from end to end: what it prints, writes, refuses and answers with, and that `audit run` takes what it wrote."""

from __future__ import annotations

import json
import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from level_readers import LEVELS, level_images, reader_file
from onnx import TensorProto, helper, numpy_helper

from audit.cli import cli
from audit.cli.demo_models import current_store

GREY = (1, 4, 5)


def audit(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def inspect(*words: str) -> Result:
    return audit("inspect", *words)


def as_json(*words: str) -> dict:
    return json.loads(inspect(*words, "--json").stdout)


@pytest.fixture(scope="module")
def grey(tmp_path_factory) -> Path:
    return saved(tmp_path_factory.mktemp("data") / "levels.npz", *level_images(120, GREY))


def saved(path: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    np.savez(path, images=images, labels=labels)
    return path


def clean_accuracy(out: Path) -> float:
    (model,) = json.loads((out / "result.json").read_text())["models"]
    return next(record for record in model["metrics"] if record["id"] == "clean_accuracy")["outcome"]["value"]


def test_without_data_it_says_what_the_model_is(tmp_path):
    path = reader_file(tmp_path / "net.onnx", ("batch", 4, 5, 1), 8)
    found = inspect(str(path))
    assert found.exit_code == 0, found.output
    for words in (
        "format       ONNX, IR 9, opset 17 of ai.onnx, from by hand",
        "input        x: float32 (batch, 4, 5, 1)",
        "output       scores: float32 (n, 32)",
        "parameters   35 (0.0 MB)",
        "runs no code that came with the model",
        "class names  not stated",
        "classes      32",
        "can          labels, scores",
        "lacks        gradients: ONNX Runtime has no backward pass",
        "dtype float32 (the ONNX graph); layout NCHW",
    ):
        assert words in found.output, words
    document = as_json(str(path))
    assert document["model"]["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 4, 5, 1]}]
    assert document["trial"] is None and document["problem"] is None


def test_where_the_keys_in_force_are_stated_is_said(tmp_path):
    path = reader_file(tmp_path / "net.onnx", ("n", 4, 5, 1), 8)
    (tmp_path / "net.input.toml").write_text('layout = "NHWC"\n')
    found = inspect(str(path), "--input-spec", "range=0-255")
    assert "range 0 to 255 (input option)" in found.output
    assert "layout NHWC (" in found.output and "net.input.toml" in found.output


# The element of the flattened input that holds the pixel in row 1, column 3 of 4 x 5, and the shape that the graph takes.
FORMS = {
    "NCHW": (("n", 1, 4, 5), 8),
    "NHWC": (("n", 4, 5, 1), 8),
    "NHW": (("n", 4, 5), 8),
    "NCHW1": (("n", 1, 4, 5, 1), 8),
    "NCD": (("n", 1, 20), 8),
    "FLAT_COLUMN": (("n", 20), 13),
}


@pytest.mark.parametrize("layout", FORMS)
def test_what_it_writes_is_what_audit_run_reads(tmp_path, grey, layout):
    shape, pixel = FORMS[layout]
    path = reader_file(tmp_path / "net.onnx", shape, pixel, scale=0.3081, offset=0.1307)
    found = inspect(str(path), "--data", str(grey), "--write")
    assert found.exit_code == 0, found.output
    assert f"Best: MNIST, {layout}" in found.output
    sidecar = (tmp_path / "net.input.toml").read_text()
    assert f'layout = "{layout}"' in sidecar and "mean = [0.1307]" in sidecar
    again = inspect(str(path), "--data", str(grey), "--write")
    assert again.exit_code == 2 and "is there already; pass --force" in again.output
    forced = inspect(str(path), "--data", str(grey), "--write", "--force")
    assert forced.exit_code == 0 and "in force already" in forced.output
    # Any other specification is at chance, where an audit refuses to start.
    planned = audit("plan", str(path), "--data", str(grey), "--samples", "40")
    assert planned.exit_code == 0, planned.output
    (tmp_path / "net.input.toml").write_text(f'layout = "{layout}"\n')
    assert "not to be told from always answering" in audit("plan", str(path), "--data", str(grey), "--samples", "40").output


def test_grey_data_for_a_colour_model_and_the_other_way_round(tmp_path, grey):
    # Green of a colour image laid out (3, 4, 5): any channel of a repeated grey image will do.
    path = reader_file(tmp_path / "colour.onnx", ("n", 3, 4, 5), 28, scale=1 / 255)
    found = inspect(str(path), "--data", str(grey), "--write")
    assert found.exit_code == 0, found.output
    assert 'colour = "repeat"' in (tmp_path / "colour.input.toml").read_text()

    images, labels = level_images(100, (3, 4, 5))
    images[:, :, 1, 3] = images[:, :1, 1, 3]
    colour = saved(tmp_path / "colour.npz", images, labels)
    path = reader_file(tmp_path / "grey.onnx", ("n", 1, 4, 5), 8)
    document = as_json(str(path), "--data", str(colour))
    assert document["trial"]["specs"][0]["input_spec"] == "colour=luma"
    assert document["trial"]["standing"] == "alone"


def test_another_size_is_offered_with_the_method(tmp_path):
    images, labels = level_images(100, (1, 8, 8))
    images[:, :, 0:4, 2:6] = images[:, :1, 1:2, 3:4]  # a patch around the pixel, so that resizing keeps its level
    data = saved(tmp_path / "small.npz", images, labels)
    path = reader_file(tmp_path / "net.onnx", ("n", 1, 16, 16), 3 * 16 + 7)
    found = inspect(str(path), "--data", str(data), "--write")
    assert found.exit_code == 0, found.output
    assert "It resizes the images to 16x16 inside the model (bilinear, antialiased" in found.output
    assert "--resize" in found.output
    assert "size = [16, 16]" in (tmp_path / "net.input.toml").read_text()
    resized = as_json(str(path), "--data", str(data), "--resize", "16x16", "--input-spec", "range=0-1")
    assert all("size=" not in each["name"] for each in resized["trial"]["specs"])


def test_two_specs_that_both_work_make_epsilon_ambiguous(tmp_path):
    """Two grey levels, far apart: nearly any scaling reads them right."""
    images, labels = level_images(200, GREY)
    labels = labels % 2
    images[:, 0, 1, 3] = np.where(labels == 1, 0.5 / LEVELS, 20.5 / LEVELS)
    weight = np.zeros((20, 2), dtype=np.float32)
    weight[8] = [1, -1]
    path = tmp_path / "net.onnx"
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("MatMul", ["f", "w"], ["m"]),
            helper.make_node("Add", ["m", "b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([-0.1, 0.1], dtype=np.float32), "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    found = inspect(str(path), "--data", str(saved(tmp_path / "d.npz", images, labels)), "--write")
    assert found.exit_code == 1, found.output
    assert "NOT TOLD APART" in found.output and "Epsilon is ambiguous" in found.output
    assert "Normalize" in found.output
    assert "Nothing was written, as several" in found.output and not (tmp_path / "net.input.toml").exists()
    forced = inspect(str(path), "--data", str(tmp_path / "d.npz"), "--write", "--force")
    assert forced.exit_code == 1 and "Wrote" in forced.output
    assert "# NOT TOLD APART" in (tmp_path / "net.input.toml").read_text()
    (tmp_path / "net.input.toml").unlink()
    document = as_json(str(path), "--data", str(tmp_path / "d.npz"))
    assert document["trial"]["standing"] == "ambiguous"
    stds = {"0 to 1, NCHW": 1, "MNIST, NCHW": 0.3081, "Fashion-MNIST, NCHW": 0.3530}
    right = {each["name"]: each for each in document["trial"]["specs"]}
    best = stds[document["trial"]["specs"][0]["name"]]
    for name, std in stds.items():
        assert right[name]["epsilon_counts"] == pytest.approx([best / std] * 2)
    assert not right["0 to 1, NCHW"]["told_apart"] or best == 1


def test_labels_off_by_one_are_noticed_under_the_right_spec(tmp_path):
    images, labels = level_images(150, GREY)
    data = saved(tmp_path / "d.npz", images, labels + 1)
    path = reader_file(tmp_path / "net.onnx", ("n", 1, 4, 5), 8, scale=0.5, offset=0.5)
    found = inspect(str(path), "--data", str(data))
    assert found.exit_code == 1, found.output
    assert "Labels look off by one: with every label lowered by 1 the accuracy is 100.0 %" in found.output
    assert "Best: -1 to 1 (mean and std 0.5), NCHW, right on 150 of 150" in found.output
    assert "labels are outside the model's 32 classes" in found.output


@pytest.mark.parametrize("count", [1, 120])
def test_labels_that_mean_nothing_are_chance(tmp_path, count):
    images, labels = level_images(count, GREY)
    wrong = np.random.default_rng(5).permutation(labels) if count > 1 else labels
    data = saved(tmp_path / "d.npz", images, wrong)
    path = reader_file(tmp_path / "net.onnx", ("n", 1, 4, 5), 8)
    found = inspect(str(path), "--data", str(data), "--write")
    assert found.exit_code == 1, found.output
    assert ("one label" if count == 1 else "No input spec is better than") in found.output
    assert "Nothing was written." in found.output and not (tmp_path / "net.input.toml").exists()


def test_class_names_of_the_model_order_the_labels(tmp_path):
    """Sorted folder names are in another order than the model's classes, whose names the graph states."""
    from PIL import Image

    names = [f"level {k}" for k in range(LEVELS)]
    path = reader_file(tmp_path / "net.onnx", ("n", 1, 4, 5), 8)
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {"class_names": json.dumps(names)})
    onnx.save(model, path)
    images, labels = level_images(96, GREY)
    labels[:LEVELS] = np.arange(LEVELS)
    images[:, 0, 1, 3] = (labels + 0.5) / LEVELS
    for row, (image, label) in enumerate(zip(images, labels, strict=True)):
        folder = tmp_path / "data" / names[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).round().astype(np.uint8)).save(folder / f"{row}.png")
    found = inspect(str(path), "--data", str(tmp_path / "data"))
    assert found.exit_code == 0, found.output
    assert "right on 96 of 96" in found.output
    assert "class names  level 0, level 1" in found.output


@pytest.fixture(scope="module")
def registry(tmp_path_factory) -> str:
    """A store with a reader as ONNX (version 1) and a pickled module whose class is not importable (version 2)."""
    import mlflow
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.create_experiment("tests", artifact_location=(folder / "artefacts").as_uri())
    path = reader_file(folder / "net.onnx", ("n", 4, 5, 1), 8, scale=1 / 255)
    with current_store(uri), warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment):
        warnings.simplefilter("ignore")
        shared = {"registered_model_name": "levels", "pip_requirements": ["torch"]}
        mlflow.onnx.log_model(onnx.load(path), name="onnx", **shared)
        mlflow.pytorch.log_model(torch.nn.Linear(2, 2), name="pickled", serialization_format="pickle", **shared)
    client.set_registered_model_alias("levels", "champion", "1")
    client.set_model_version_tag("levels", "1", "audit.input.size", "9x9")
    client.set_model_version_tag("levels", "1", "owner", "ann")
    return uri


def tags(uri: str) -> dict[str, str]:
    from mlflow import MlflowClient

    return dict(MlflowClient(tracking_uri=uri).get_model_version("levels", "1").tags)


def test_tags_of_a_registered_version_are_shown_then_set_then_read(tmp_path, registry, grey):
    store = ("--tracking-uri", registry)
    shown = inspect("models:/levels@champion", "--data", str(grey), *store)
    assert shown.exit_code == 0, shown.output
    assert "models:/levels@champion is models:/levels/1" in shown.output
    assert "audit.input.layout=NHWC audit.input.channels=RGB audit.input.range=0..255" in shown.output
    assert set(tags(registry)) == {"audit.input.size", "owner"}
    refused = inspect("models:/levels@champion", "--data", str(grey), *store, "--write")
    assert refused.exit_code == 2 and "has the tags audit.input.size already; pass --force" in refused.output
    written = inspect("models:/levels@champion", "--data", str(grey), *store, "--write", "--force")
    assert written.exit_code == 0, written.output
    # The stale size would have spoiled the new specification.
    assert tags(registry) == {
        "owner": "ann",
        "audit.input.layout": "NHWC",
        "audit.input.channels": "RGB",
        "audit.input.range": "0..255",
        "audit.input.mean": "0",
        "audit.input.std": "1",
    }
    out = tmp_path / "out"
    words = (
        "run",
        "models:/levels/1",
        "--data",
        str(grey),
        *store,
        "--no-mlflow",
        "--no-pdf",
        "--quiet",
        "--samples",
        "40",
        "--out",
        str(out),
    )
    ran = audit(*words)
    assert ran.exit_code == 0, ran.output
    assert clean_accuracy(out) == 1.0


class Payload:
    """Unpickling it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "ran")


def test_a_model_that_runs_code_is_described_and_not_run(tmp_path, registry, grey):
    folder = next(path.parent for path in Path(registry.removeprefix("sqlite:///")).parent.rglob("model.pth"))
    good, marker = (folder / "model.pth").read_bytes(), tmp_path / "ran"
    (folder / "model.pth").write_bytes(pickle.dumps(Payload(marker)))
    try:
        store = ("--tracking-uri", registry)
        found = inspect("models:/levels/2", *store)
        assert found.exit_code == 0, found.output
        assert "RUNS CODE that came with the model: the pickle model.pth" in found.output
        assert "  needs        mlflow" in found.output and ", torch" in found.output
        refused = inspect("models:/levels/2", "--data", str(grey), *store)
        assert refused.exit_code == 2
        assert "RUNS CODE" in refused.output and "pass --trust" in refused.output
        assert not marker.exists()
    finally:
        (folder / "model.pth").write_bytes(good)
    assert not any("level" in name for name in sys.path)


def test_a_trusted_model_that_takes_none_of_the_forms(registry, grey):
    found = inspect("models:/levels/2", "--data", str(grey), "--tracking-uri", registry, "--trust")
    assert found.exit_code == 2
    assert "runs under none of the" in found.output
    assert "parameters   6 (0.0 MB)" in found.output
    assert "not taken: " in found.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("missing.onnx",), "there is no model file"),
        (("net.onnx", "--data", "nowhere"), "nowhere"),
        (("net.onnx", "--write"), "--write writes the input spec that was found on data"),
        (("net.onnx", "--input-spec", "layuot=NHWC"), "did you mean layout?"),
        (("what?",), "is not a model reference"),
    ],
)
def test_input_errors_are_one_sentence_and_exit_code_2(tmp_path, words, says):
    reader_file(tmp_path / "net.onnx", ("n", 1, 4, 5), 8)
    found = inspect(*words)
    assert found.exit_code == 2
    assert says in found.output
    assert len(found.output.strip().splitlines()) == 1


def test_a_graph_that_cannot_be_opened_is_described_all_the_same(tmp_path):
    path = reader_file(tmp_path / "net.onnx", ("n", 1, 4, 5), 8)
    model = onnx.load(path)
    model.graph.node[0].op_type = "Unheard"
    onnx.save(model, path)
    found = inspect(str(path))
    assert found.exit_code == 2
    assert "format       ONNX, IR 9" in found.output and "Error: " in found.output
    assert json.loads(inspect(str(path), "--json").stdout)["problem"]


def test_data_that_fit_in_no_form_are_refused_with_the_reason(tmp_path, grey):
    path = reader_file(tmp_path / "net.onnx", ("n", 7, 3, 2, 2), 8)
    found = inspect(str(path), "--data", str(grey))
    assert found.exit_code == 2
    assert "takes images of 7x3x2x2, but the data, as NCHW, are 1x4x5" in found.output


def test_the_digits_models_are_found_by_layout_and_are_honest_about_scale(digits_store):
    """A ReLU network hardly cares for the scale of its input: inspect must not pretend to know it."""
    document = as_json(str(digits_store.onnx_standard), "--data", "digits:test")
    specs = {each["name"]: each for each in document["trial"]["specs"]}
    assert specs["0 to 1, NCHW"]["in_force"] and specs["0 to 1, NCHW"]["accuracy"] > 0.9
    assert document["trial"]["forward_passes"] == 1000
    alone = document["trial"]["standing"] == "alone"
    assert alone == all(each["told_apart"] for each in document["trial"]["specs"][1:])
    assert document["model"]["output_kind"] == "logits (detected)"
    assert inspect(str(digits_store.onnx_standard), "--data", "digits:test").exit_code == (0 if alone else 1)
