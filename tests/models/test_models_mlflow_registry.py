from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_models import Payload, Small, Store, hostile_copy, images, open_model, rewritten, upload

from audit.errors import InputError, ModelError, UntrustedError
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.torch_module import wrap
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)


def reference() -> Classifier:
    return wrap(Small(), image_shape=SHAPE, device="cpu")


def test_a_pt2_version_needs_no_trust_and_has_gradients(store: Store) -> None:
    x = images(40)
    classifier = open_model(store, "models:/small/1", spec="range=0-1")
    torch.testing.assert_close(classifier.logits(x), reference().logits(x), rtol=1e-5, atol=1e-5)
    labels = torch.arange(40) % 5
    loss = lambda scores, rows: torch.nn.functional.cross_entropy(scores, labels[rows], reduction="none")  # noqa: E731
    torch.testing.assert_close(classifier.loss_gradient(x, loss)[2], reference().loss_gradient(x, loss)[2], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(classifier.jacobian(x[:3])[1], reference().jacobian(x[:3])[1], rtol=1e-4, atol=1e-6)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert torch.equal(classifier.logits(x[order][:7]), classifier.logits(x)[order[:7]])
    assert Capability.GRADIENTS not in classifier.lacks


def test_the_identity_of_a_version(store: Store) -> None:
    identity = open_model(store, "models:/small@champion").identity
    assert (identity.reference, identity.uri) == ("models:/small@champion", "models:/small/1")
    assert (identity.name, identity.version, identity.label) == ("small", "1", "small, version\u00a01")
    assert (identity.model_id, identity.run_id) == (store.model_ids["pt2"], store.run_id)
    assert (identity.flavour, identity.classes, identity.input_shape, identity.trusted) == ("pytorch (pt2)", 5, SHAPE, False)
    assert identity.description == "A small network, see https://…@host/"
    assert identity.tags == {"audit.input.range": "0-2", "origin": "token=…"}
    assert identity.input_spec["range"] == "0 to 2"
    artefacts = next(Path(store.uri.removeprefix("sqlite:///")).parent.rglob(f"{identity.model_id}/artifacts"))
    assert identity.files == {
        path.relative_to(artefacts).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in artefacts.rglob("*")
        if path.is_file()
    }
    assert "data/model.pt2" in identity.files


def test_tags_give_the_input_spec_unless_the_user_states_another(store: Store) -> None:
    x = images(4)
    torch.testing.assert_close(open_model(store, "models:/small/1").logits(x), reference().logits(x * 2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        open_model(store, "models:/small/1", spec="range=0-1").logits(x), reference().logits(x), rtol=1e-4, atol=1e-5
    )


def test_every_way_to_name_a_model(store: Store) -> None:
    assert open_model(store, "models:/small/latest").identity.version == "4"
    logged = open_model(store, f"models:/{store.model_ids['pt2']}").identity
    assert (logged.name, logged.version, logged.model_id, logged.run_id) == ("pt2", None, store.model_ids["pt2"], store.run_id)
    run = open_model(store, f"runs:/{store.run_id}/onnx").identity
    assert (run.name, run.run_id, run.model_id, run.flavour) == ("onnx", store.run_id, store.model_ids["onnx"], "onnx")
    assert run.digest == open_model(store, "models:/small/3").identity.digest != logged.digest


def test_the_onnx_flavour_agrees_and_lacks_gradients(store: Store) -> None:
    x = images(40)
    classifier = open_model(store, "models:/small/3")
    torch.testing.assert_close(classifier.logits(x), reference().logits(x), rtol=1e-5, atol=1e-5)
    assert classifier.identity.flavour == "onnx" and "ONNX Runtime" in classifier.identity.runtime
    assert "no backward pass" in classifier.lacks[Capability.GRADIENTS]
    assert resolve_outputs(classifier, x).identity.outputs == "logits (detected)"


def test_a_pt2_logged_with_one_image_runs_one_by_one(store: Store) -> None:
    x = images(5)
    classifier = open_model(store, "models:/small/4", image_shape=None)
    torch.testing.assert_close(classifier.logits(x), reference().logits(x), rtol=1e-5, atol=1e-5)
    assert classifier.identity.input_shape == SHAPE


def test_a_shape_that_does_not_fit_is_refused_with_both(store: Store) -> None:
    with pytest.raises(ModelError, match="takes images of 3x8x8, but the data, as NCHW, are 1x8x8"):
        open_model(store, "models:/small/1", image_shape=(1, 8, 8))


def test_a_pickle_needs_trust(store: Store) -> None:
    with pytest.raises(
        UntrustedError, match=r"small, version\s2: loading it would run code .*the pickle model\.pth; .*pass --trust"
    ):
        open_model(store, "models:/small/2")
    classifier = open_model(store, "models:/small/2", trust=True)
    assert (classifier.identity.flavour, classifier.identity.trusted) == ("pytorch (pickle)", True)
    torch.testing.assert_close(classifier.logits(images(5)), reference().logits(images(5)), rtol=1e-5, atol=1e-5)
    assert not open_model(store, "models:/small/1", trust=True).identity.trusted
    with pytest.raises(ModelError, match="does not declare the size of its images"):
        open_model(store, "models:/small/2", trust=True, image_shape=None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models:/nothing/1", "there is no registered model 'nothing' in sqlite"),
        ("models:/nothing@champion", "there is no registered model 'nothing' in sqlite"),
        ("models:/nothing/latest", "there is no registered model 'nothing' in sqlite"),
        ("models:/small/99", "model 'small' has no version 99 in sqlite"),
        ("models:/small@absent", "model 'small' has no alias 'absent' in sqlite"),
        ("models:/hollow/latest", "model 'hollow' has no version yet"),
        ("models:/m-00000000000000000000000000000000", "there is no logged model m-00000000000000000000000000000000 in sqlite"),
        ("runs:/00000000000000000000000000000000/model", "there is no run 00000000000000000000000000000000 in sqlite"),
    ],
)
def test_what_is_not_there_is_named(store: Store, text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        open_model(store, text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_artefacts_that_are_not_there_or_no_model(store: Store) -> None:
    with pytest.raises(InputError, match=f"run {store.run_id} has no model at 'absent'"):
        open_model(store, f"runs:/{store.run_id}/absent")
    with pytest.raises(ModelError, match="notes: has no MLmodel file"):
        open_model(store, f"runs:/{store.run_id}/notes")


def test_a_store_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    absent = tmp_path / "mlflow.db"
    with pytest.raises(InputError, match="there is no MLflow store at sqlite"):
        load(ModelRef.parse("models:/small/1"), image_shape=SHAPE, device="cpu", tracking_uri=f"sqlite:///{absent}")
    assert not absent.exists()


@pytest.fixture
def server() -> Iterator[str]:
    """A server that answers everything with the status in its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            status = int(self.path.split("/")[1])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>")

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield f"http://ann:hunter2@127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "wants credentials (401)"), (403, "denies access to models:/small/1 (403)"), (200, "cannot be read from")],
)
def test_servers_that_refuse(server: str, status: int, says: str) -> None:
    with pytest.raises(InputError) as error:
        load(ModelRef.parse("models:/small/1"), image_shape=SHAPE, device="cpu", tracking_uri=f"{server}/{status}")
    message = str(error.value)
    assert says in message and "hunter2" not in message and "\n" not in message


def test_a_server_that_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=r"the MLflow server http://127\.0\.0\.1:9 cannot be reached; is it running"):
        load(ModelRef.parse("models:/small/1"), image_shape=SHAPE, device="cpu", tracking_uri="http://127.0.0.1:9")
    assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "0"


def test_code_paths_are_refused_and_nothing_runs(store: Store, tmp_path: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    marker = tmp_path / "ran"
    (folder / "code").mkdir()
    # The name shadows a module of the standard library, so that whoever imports that one runs this.
    (folder / "code" / "colorsys.py").write_text(f"open({str(marker)!r}, 'w').close()")
    (folder / "MLmodel").write_text((folder / "MLmodel").read_text().replace("code: null", "code: code"))
    with pytest.raises(UntrustedError, match="the Python files in code/"):
        open_model(store, upload(store, run_id, folder))
    sys.modules.pop("colorsys", None)
    import colorsys  # noqa: F401

    assert not marker.exists()
    assert not any("model" in path and "code" in path for path in sys.path)


def test_a_hostile_pickle_is_refused_unopened_and_real(store: Store, tmp_path: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    marker = tmp_path / "ran"
    torch.save(Payload(marker), folder / "data" / "model.pth")
    text = upload(store, run_id, folder)
    with pytest.raises(UntrustedError, match=r"the pickle model\.pth"):
        open_model(store, text)
    assert not marker.exists()
    with pytest.raises(ModelError, match=r"model\.pth cannot be loaded|holds a int"):
        open_model(store, text, trust=True)
    assert marker.exists()


@pytest.mark.parametrize("where", ["guard", "size"])
def test_a_hostile_pt2_graph_is_refused_unopened(store: Store, tmp_path: Path, where: str) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    marker = tmp_path / "ran"
    evil = f"__import__('pathlib').Path({str(marker)!r}).write_text('x') > 0"
    good = folder / "data" / "model.pt2"
    good.rename(tmp_path / "good.pt2")

    def change(graph: dict[str, object]) -> None:
        if where == "guard":
            graph["guards_code"] = [evil]
        else:
            text = json.dumps(graph)
            graph.update(json.loads(text.replace("Symbol('s77', positive=True, integer=True)", evil)))

    rewritten(tmp_path / "good.pt2", good, change)
    with pytest.raises(UntrustedError, match="is the Python expression"):
        open_model(store, upload(store, run_id, folder))
    assert not marker.exists()


def test_a_pickle_hidden_in_a_pt2_is_named(store: Store, tmp_path: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    marker, good = tmp_path / "ran", folder / "data" / "model.pt2"
    torch.save(Payload(marker), tmp_path / "inputs.pt")
    import zipfile

    good.rename(tmp_path / "good.pt2")
    with zipfile.ZipFile(tmp_path / "good.pt2") as old, zipfile.ZipFile(good, "w") as new:
        for info in old.infolist():
            hidden = "sample_inputs" in info.filename
            new.writestr(info.filename, (tmp_path / "inputs.pt").read_bytes() if hidden else old.read(info))
    with pytest.raises(UntrustedError, match=r"the pickle data/sample_inputs/model\.pt in model\.pt2, which builds "):
        open_model(store, upload(store, run_id, folder))
    assert not marker.exists()
    assert "MLFLOW_ALLOW_PICKLE_DESERIALIZATION" not in os.environ


def test_a_missing_module_is_named_with_the_models_requirements(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pickle")
    (tmp_path / "vanishing_nets.py").write_text(
        textwrap.dedent("""
        import torch

        class Net(torch.nn.Module):
            def forward(self, x):
                return x.flatten(1)
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import vanishing_nets  # type: ignore[import-not-found]

    torch.save(vanishing_nets.Net(), folder / "data" / "model.pth")
    monkeypatch.undo()
    del sys.modules["vanishing_nets"]
    with pytest.raises(
        ModelError, match=r"needs the Python module 'vanishing_nets'.*own requirements: .*torch, some-library==1\.0"
    ):
        open_model(store, upload(store, run_id, folder), trust=True)


def test_a_damaged_program_and_a_damaged_graph(store: Store, tmp_path: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "pt2")
    path = folder / "data" / "model.pt2"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ModelError, match="is not a pt2 archive"):
        open_model(store, upload(store, run_id, folder))


def test_the_unused_code_of_an_onnx_model_is_mentioned(store: Store, tmp_path: Path) -> None:
    folder, store, run_id = hostile_copy(store, tmp_path, "onnx")
    (folder / "MLmodel").write_text((folder / "MLmodel").read_text().replace("code: null", "code: code"))
    identity = open_model(store, upload(store, run_id, folder)).identity
    assert "carries code that was not run: the Python files in code/" in identity.cautions[0]
    assert not identity.trusted


def test_class_names_in_a_tag(store: Store) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store.uri, registry_uri=store.uri)
    client.set_model_version_tag("small", "3", "audit.class_names", '["a", "b", "c", "d", "e"]')
    assert open_model(store, "models:/small/3").identity.class_names == ("a", "b", "c", "d", "e")
    client.set_model_version_tag("small", "3", "audit.class_names", '{"a": 3}')
    with pytest.raises(ModelError, match=r"tag audit\.class_names: the indices must be 0 to 0"):
        open_model(store, "models:/small/3")
    client.delete_model_version_tag("small", "3", "audit.class_names")
