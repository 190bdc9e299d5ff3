"""What is said of a model agrees with what made it, and nothing of it runs to find out."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from small_models import Small, Store

from audit.errors import UntrustedError
from audit.models.inspection import Facts, describe
from audit.models.loading import opened
from audit.models.located import located
from audit.models.mlmodel import Port
from audit.models.ref import ModelRef

PARAMETERS = sum(parameter.numel() for parameter in Small().parameters())


def facts(text: str, uri: str | None = None, *, trust: bool = False) -> tuple[Facts, tuple[str, ...]]:
    with located(ModelRef.parse(text), spec=None, tracking_uri=uri, registry_uri=uri) as found:
        model = None
        if not found.runs or trust:
            model = opened(found, trust=trust, device="cpu", block_rows=4)
        return describe(found, model), found.runs


def test_an_onnx_graph_by_hand(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(torch.zeros(6, 3, dtype=torch.float16).numpy(), "w")
    axes = numpy_helper.from_array(torch.tensor([-1, 6]).numpy(), "shape")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["scores"])],
        "g",
        # Old exporters list initialisers among the inputs; they are not the caller's to give.
        [value("x", TensorProto.FLOAT16, ["batch", 1, 2, 3]), value("w", TensorProto.FLOAT16, [6, 3])],
        [value("scores", TensorProto.FLOAT16, [None, 3])],
        [weight, axes],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 2)], ir_version=9, producer_name="me"
    )
    onnx.save(model, tmp_path / "net.onnx")
    found, runs = facts(str(tmp_path / "net.onnx"))
    assert runs == ()
    assert found == Facts(
        format="ONNX",
        versions=("IR 9", "opset 17 of ai.onnx", "opset 2 of my.ops"),
        producer="me",
        inputs=(Port(name="x", dtype="float16", shape=("batch", 1, 2, 3)),),
        outputs=(Port(name="scores", dtype="float16", shape=(None, 3)),),
        parameters=18,
        parameter_bytes=36,
    )


def test_an_exported_program_in_the_registry(store: Store) -> None:
    found, runs = facts("models:/small/1", store.uri)
    assert runs == ()
    assert found.format == "PyTorch exported program (pt2), logged with MLflow"
    (taken,), (given,) = found.inputs, found.outputs
    assert (taken.dtype, taken.shape[1:], given.shape[1:]) == ("float32", (3, 8, 8), (5,))
    assert isinstance(taken.shape[0], str)  # the free batch dimension by its name
    assert (found.parameters, found.parameter_bytes) == (PARAMETERS, 4 * PARAMETERS)


def test_a_pickle_is_described_without_running_it(store: Store) -> None:
    sys.modules.pop("small_models_marker", None)
    found, runs = facts("models:/small/2", store.uri)
    assert any("model.pth" in reason for reason in runs)
    assert found.format == "PyTorch module (pickle), logged with MLflow"
    assert found.parameters is None and found.inputs == ()
    assert "some-library==1.0" in found.requirements
    trusted, _ = facts("models:/small/2", store.uri, trust=True)
    assert trusted.parameters == PARAMETERS
    with (
        located(ModelRef.parse("models:/small/2"), spec=None, tracking_uri=store.uri, registry_uri=store.uri) as located_model,
        pytest.raises(UntrustedError),
    ):
        opened(located_model, trust=False, device="cpu", block_rows=4)


def test_the_onnx_flavour(store: Store) -> None:
    found, runs = facts("models:/small/3", store.uri)
    assert runs == () and found.format == "ONNX, logged with MLflow"
    assert found.parameters == PARAMETERS


def test_a_signature_is_read_as_data(tmp_path: Path) -> None:
    from audit.models.mlmodel import read

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "model.pth").write_bytes(b"x")
    columns = (
        '[{"name": "image", "type": "tensor", "tensor-spec": {"dtype": "uint8", "shape": [-1, 28, 28]}}, '
        '{"type": "long", "name": "age"}, 5, {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": "wide"}}]'
    )
    (tmp_path / "MLmodel").write_text(
        f"flavors:\n  pytorch:\n    model_data: data\nsignature:\n  inputs: '{columns}'\n  outputs: 'no json'\n"
    )
    signature = read(tmp_path, "model").signature
    assert signature["inputs"] == (Port(name="image", dtype="uint8", shape=(None, 28, 28)),)
    assert signature["outputs"] == ()
