"""`audit inspect` on every kind of model: one unit, several outputs, half precision, MLflow's other flavours, and without files."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from exported import exported
from level_readers import LEVELS, Reader, dataset, level_images, opened
from onnx import TensorProto, helper, numpy_helper

from audit.cli import cli
from audit.cli.demo_models import current_store
from audit.inspection.candidates import Candidate
from audit.inspection.trial import Tried, try_all
from audit.models import ModelRef, load, resolve_outputs
from audit.models.input_spec import InputSpec
from audit.vocabulary import Capability

GREY = (1, 4, 5)


def inspect(*words: str) -> Result:
    return CliRunner().invoke(cli, ["inspect", *words])


def as_json(*words: str) -> dict:
    return json.loads(inspect(*words, "--json").stdout)


def halves(path: Path) -> Path:
    """Grey images whose class says whether the pixel in row 1, column 3 is above the middle."""
    images, labels = level_images(96, GREY)
    np.savez(path, images=images, labels=(labels >= LEVELS // 2).astype(np.int64))
    return path


def one_unit(path: Path, *last: str) -> Path:
    """A graph of one value per image: 10 (pixel - 0.5), through the operators `last`, beside an output that is none of ours."""
    chain = ["steep", *(f"after_{name}" for name in last[:-1]), *(["y"] if last else [])]
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["steep" if last else "y"]),
        *(helper.make_node(name, [taken], [given]) for name, taken, given in zip(last, chain, chain[1:], strict=False)),
    ]
    weight = np.zeros((20, 1), dtype=np.float32)
    weight[8] = 10
    graph = helper.make_graph(
        nodes,
        "unit",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *GREY])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([-5], dtype=np.float32), "b")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("last", "kind"),
    [(("Sigmoid",), "the probability of the second of two classes"), ((), "one logit for two classes")],
)
def test_one_unit_is_read_as_its_audit_reads_it(tmp_path, last, kind):
    found = as_json(str(one_unit(tmp_path / "net.onnx", *last)), "--data", str(halves(tmp_path / "d.npz")))
    assert found["model"]["output_kind"] == f"{kind} (detected)"
    plain = next(each for each in found["trial"]["specs"] if each["name"] == "0 to 1, NCHW")
    assert plain["right"] == 96
    assert plain["log_loss"] < 0.3


def test_one_unit_with_stated_logits_is_not_taken_for_a_probability(tmp_path):
    """0.4 is class 1 as a logit and class 0 as a probability."""
    path = one_unit(tmp_path / "net.onnx", "Sigmoid")
    words = (str(path), "--data", str(halves(tmp_path / "d.npz")), "--input-spec", "outputs=logits")
    plain = next(each for each in as_json(*words)["trial"]["specs"] if each["in_force"])
    ones = int((np.load(tmp_path / "d.npz")["labels"] == 1).sum())
    assert plain["right"] == ones


def test_stated_probabilities_that_are_none(tmp_path):
    path = one_unit(tmp_path / "net.onnx")
    found = inspect(str(path), "--data", str(halves(tmp_path / "d.npz")), "--input-spec", "outputs=probabilities")
    assert found.exit_code == 2
    assert "outputs=probabilities was stated, but the outputs are not" in found.output


class Bytes(Reader):
    """In bfloat16 from the first weight to the last."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dtype is torch.bfloat16
        return super().forward(x).to(torch.bfloat16)


def test_half_precision_without_a_numpy_type_is_tried():
    images, labels = level_images(32, GREY)
    spec = InputSpec(dtype="bfloat16", layout="FLAT")
    (tried,) = try_on_one(Bytes(spec, GREY), spec, images, labels)
    assert tried.refused is None and tried.predicted.shape == (32,)


def try_on_one(module: torch.nn.Module, spec: InputSpec, images: np.ndarray, labels: np.ndarray) -> list[Tried]:
    candidate = Candidate(name="it", spec=spec)
    return try_all(opened(module, None), [candidate], dataset(images, labels), np.arange(len(labels)), labels, 16)


def test_labels_have_no_log_loss():
    images, labels = level_images(32, GREY)

    class Hard(Reader):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(super().forward(x).argmax(1), LEVELS).float()

    (tried,) = try_on_one(Hard(InputSpec(), GREY), InputSpec(), images, labels)
    assert (tried.predicted == labels).all() and np.isnan(tried.losses).all()


class Flat(torch.nn.Module):
    """Takes flattened images."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.mark.parametrize("layout", ["FLAT", "FLAT_COLUMN"])
def test_gradients_of_a_flat_graph_are_those_of_the_module(tmp_path, layout):
    torch.manual_seed(0)
    module = Flat()
    path = exported(module, torch.rand(2, 20), tmp_path / "flat.onnx", dynamo=False)
    images = torch.rand(24, *GREY, generator=torch.Generator().manual_seed(1))
    loaded = load(ModelRef.parse(str(path)), image_shape=GREY, spec=f"layout={layout}", device="cpu")
    classifier = resolve_outputs(loaded, images)
    assert Capability.GRADIENTS not in classifier.lacks
    _, _, found = classifier.loss_gradient(images, lambda logits, _: logits[:, 1])
    x = images.clone().requires_grad_(True)
    rows = x.flatten(1) if layout == "FLAT" else x.transpose(2, 3).flatten(1)
    module(rows)[:, 1].sum().backward()
    torch.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-6)


def test_a_graph_with_gradients_says_so_once_it_was_compared(tmp_path):
    path = one_unit(tmp_path / "net.onnx", "Sigmoid")
    assert "gradients: ONNX Runtime has no backward pass" in inspect(str(path)).output
    found = inspect(str(path), "--data", str(halves(tmp_path / "d.npz")))
    assert "can          labels, scores, gradients" in found.output


def test_outputs_and_digests_are_named_as_for_an_audit(tmp_path):
    path = one_unit(tmp_path / "net.onnx", "Sigmoid", "Neg")
    model = onnx.load(path)
    model.graph.output.append(helper.make_tensor_value_info("steep", TensorProto.FLOAT, ["n", 1]))
    onnx.save(model, path)
    data = str(halves(tmp_path / "d.npz"))
    assert as_json(str(path), "--data", data, "--output", "steep")["trial"]["specs"][0]["right"] == 96
    assert "has no output 'stepe'; did you mean 'steep'?" in inspect(str(path), "--output", "stepe").output
    refused = inspect(str(path), "--expect-sha256", "0" * 64)
    assert refused.exit_code == 2 and "does not have the expected sha256" in refused.output


@pytest.mark.parametrize(("model", "kind"), [("https://host/invocations", "an endpoint"), ("some.module:function", "a function")])
@pytest.mark.parametrize("words", [(), ("--data", "digits:test"), ("--data", "digits:test", "--write")])
def test_models_without_files_are_refused_in_a_sentence(model, kind, words):
    found = inspect(model, *words)
    assert found.exit_code == 2
    assert f"{model} is {kind}, which has none to read; audit plan asks it" in found.output
    assert len(found.output.strip().splitlines()) == 1


@pytest.fixture(scope="module")
def flavours(tmp_path_factory) -> tuple[str, str]:
    """A run with scikit-learn's classifiers of digits, with and without probabilities, and the store it is in."""
    import mlflow
    from mlflow import MlflowClient
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    folder = tmp_path_factory.mktemp("flavours")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    experiment = client.create_experiment("tests", artifact_location=(folder / "artefacts").as_uri())
    x, labels = load_digits(return_X_y=True)
    needs = {"pip_requirements": ["scikit-learn"], "serialization_format": "cloudpickle"}
    with current_store(uri), warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment) as run:
        warnings.simplefilter("ignore")
        mlflow.sklearn.log_model(LogisticRegression(max_iter=30).fit(x / 16, labels), name="logistic", **needs)
        mlflow.sklearn.log_model(RidgeClassifier().fit(x / 16, labels), name="ridge", **needs)
    return uri, f"runs:/{run.info.run_id}"


def test_a_pyfunc_model_is_described_and_then_tried_with_trust(flavours):
    uri, run = flavours
    words = (f"{run}/logistic", "--tracking-uri", uri)
    plain = inspect(*words)
    assert plain.exit_code == 0, plain.output
    assert "format       Python function (pyfunc), logged with MLflow" in plain.output
    assert "RUNS CODE that came with the model" in plain.output and "(--trust)" in plain.output
    refused = inspect(*words, "--data", "digits:test")
    assert refused.exit_code == 2 and "pass --trust" in refused.output
    found = as_json(*words, "--data", "digits:test", "--trust")
    assert found["model"]["output_kind"] == "probabilities (detected)"
    assert any(note.startswith("Code of the model ran, allowed for files with sha256") for note in found["model"]["notes"])
    best = found["trial"]["specs"][0]
    assert best["accuracy"] > 0.9 and best["log_loss"] is not None
    assert found["model"]["can"] == ["labels", "scores"]


def test_a_pyfunc_model_that_answers_with_labels(flavours):
    uri, run = flavours
    found = as_json(f"{run}/ridge", "--tracking-uri", uri, "--data", "digits:test", "--trust")
    assert found["model"]["can"] == ["labels"] and found["model"]["output_kind"] == "labels only"
    assert found["trial"]["specs"][0]["accuracy"] > 0.8
    assert {each["log_loss"] for each in found["trial"]["specs"]} == {None}
