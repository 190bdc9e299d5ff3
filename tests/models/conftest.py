"""One MLflow store for this room: a small network in every form in which it can be registered."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch
from small_models import Small, Store, images

from audit.cli.demo_models import current_store


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    import mlflow
    import onnx
    from mlflow import MlflowClient

    folder = tmp_path_factory.mktemp("store with space")
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    # By its id: set_experiment would leave the choice behind in the environment of every later test.
    experiment_id = client.create_experiment("tests", artifact_location=(folder / "artefacts").as_uri())
    model, example = Small().eval(), images(4).numpy()
    ids = {}
    with current_store(uri), warnings.catch_warnings(), mlflow.start_run(experiment_id=experiment_id) as run:
        warnings.simplefilter("ignore")
        shared = {"registered_model_name": "small", "pip_requirements": ["torch", "some-library==1.0"]}
        torch.onnx.export(model, (images(2),), folder / "net.onnx", dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False)
        ids["pt2"] = mlflow.pytorch.log_model(model, name="pt2", input_example=example, **shared).model_id
        ids["pickle"] = mlflow.pytorch.log_model(model, name="pickled", serialization_format="pickle", **shared).model_id
        ids["onnx"] = mlflow.onnx.log_model(onnx.load(folder / "net.onnx"), name="onnx", **shared).model_id
        ids["one"] = mlflow.pytorch.log_model(model, name="one", input_example=example[:1], **shared).model_id
        mlflow.log_text("no model", "notes/readme.txt")
    client.set_registered_model_alias("small", "champion", "1")
    client.update_model_version("small", "1", description="A small network, see https://ann:hunter2@host/")
    client.set_model_version_tag("small", "1", "audit.input.range", "0-2")
    client.set_model_version_tag("small", "1", "origin", "token=abc123")
    client.create_registered_model("hollow")
    return Store(uri=uri, run_id=run.info.run_id, model_ids=ids)


@pytest.fixture(autouse=True)
def _import_path_is_left_alone() -> object:
    """A trusted model with code paths changes sys.path; no test may hand that on."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def plain_pt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pt2 archive as torch writes it, with a dynamic batch."""
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    program = torch.export.export(Small().eval(), (images(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.export.save(program, path)
    return path
