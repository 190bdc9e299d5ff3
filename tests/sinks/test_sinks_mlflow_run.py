from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mlflow_sample as sample

from audit.errors import InputError, SinkError
from audit.result import AuditResult
from audit.sinks import mlflow_run
from audit.sinks.mlflow_content import model_content

WRITES = (
    "create_experiment", "create_run", "log_inputs", "log_batch", "log_text", "set_terminated", "log_artifact", "log_artifacts",
    "set_model_version_tag", "set_tag",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Store:
    uri: str
    client: Any
    model_id: str


def fill(uri: str) -> Store:
    """A registered model with two versions and one logged model."""
    import mlflow

    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    model_id = client.create_logged_model(client.create_experiment("training"), name="digits").model_id
    client.create_registered_model("digits")
    for _ in range(2):
        client.create_model_version("digits", source=f"models:/{model_id}", model_id=model_id)
    return Store(uri=uri, client=client, model_id=model_id)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    import mlflow

    place = tmp_path_factory.mktemp("a store")
    before, uri = Path.cwd(), mlflow.get_tracking_uri()
    os.chdir(place)
    yield fill(f"sqlite:///{place}/mlflow.db")
    os.chdir(before)
    mlflow.set_tracking_uri(uri)


def runs_of(store: Store, audit: AuditResult) -> list[Any]:
    experiments = [found.experiment_id for found in store.client.search_experiments()]
    return list(store.client.search_runs(experiments, f"tags.`audit.result_id` = '{audit.id}'"))


def assert_complete(store: Store, audit: AuditResult, logged: mlflow_run.LoggedRuns) -> None:
    """Exactly one complete audit in the store, and everything of it is there once."""
    client, runs = store.client, {run.info.run_id: run for run in runs_of(store, audit)}
    assert set(runs) == {logged.parent_run_id, *logged.child_run_ids}
    assert {run_id for run_id, run in runs.items() if run.data.tags.get("audit.complete") == "true"} == {logged.parent_run_id}
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    files = {item.path for item in client.list_artifacts(logged.parent_run_id)}
    assert files == {"result.json", "report.html", "report.pdf", "examples.parquet", "failures"}
    assert [item.path for item in client.list_artifacts(logged.parent_run_id, "failures")] == ["failures/0-clean.png"]
    for index, (model, run_id) in enumerate(zip(audit.models, logged.child_run_ids, strict=True)):
        run, values = runs[run_id], model_content(audit, index)
        assert run.data.tags["mlflow.parentRunId"] == logged.parent_run_id
        assert run.data.metrics == values.metrics
        assert run.data.params == values.params
        assert [item.dataset.name for item in run.inputs.dataset_inputs] == ["digits.npz"]
        assert [item.path for item in client.list_artifacts(run_id)] == ["metrics.json"]
        assert all(len(client.get_metric_history(run_id, key)) == 1 for key in list(values.metrics)[:2])
        linked = [metric for metric in client.get_logged_model(store.model_id).metrics or [] if metric.run_id == run_id]
        if model.identity.model_id == store.model_id:
            assert sorted((metric.key, metric.value) for metric in linked) == sorted(values.metrics.items())
            assert {(metric.dataset_name, metric.dataset_digest) for metric in linked} == {("digits.npz", "0123456789abcdef")}
            assert [item.model_id for item in client.get_run(run_id).inputs.model_inputs] == [store.model_id]
        else:
            assert linked == []
        tags = client.get_model_version("digits", model.identity.version).tags
        assert (tags["audit.result_id"], tags["audit.run_id"]) == (audit.id, logged.parent_run_id)


def audit_of(store: Store, identity: str, **changes: Any) -> AuditResult:
    models = (sample.model(model_id=store.model_id), sample.model(version="2", accuracy=0.75))
    return dataclasses.replace(sample.result(*models, identity=identity), **changes)


def test_everything_arrives_once(local: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = audit_of(local, "once")
    folder = sample.folder(tmp_path / "out", audit)
    before = dict(os.environ)
    logged = mlflow_run.log(folder, tracking_uri=local.uri, experiment=None)
    assert_complete(local, audit, logged)
    assert logged.experiment_name == "audit" and not logged.was_complete and logged.notes == ()
    assert dict(os.environ) == before
    assert capsys.readouterr().out == ""
    assert local.client.get_model_version("digits", "1").tags == {
        "audit.status": "partly failed", "audit.run_id": logged.parent_run_id, "audit.result_id": "once",
        "audit.score": "at most 96.0, undetermined: local margin", "audit.date": audit.created, "audit.verdict": "no policy",
    }  # fmt: skip
    table = json.loads(Path(local.client.download_artifacts(logged.child_run_ids[0], "metrics.json", str(tmp_path))).read_text())
    assert table["columns"][0] == "metric" and len(table["data"]) == 5


def test_logging_again_changes_nothing(local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    audit = audit_of(local, "again")
    folder = sample.folder(tmp_path / "out", audit)
    first = mlflow_run.log(folder, tracking_uri=local.uri, experiment="one")
    for name in (*WRITES, "delete_run"):
        monkeypatch.setattr(mlflow.MlflowClient, name, None)
    again = mlflow_run.log(folder, tracking_uri=local.uri, experiment="another")
    assert again == dataclasses.replace(first, was_complete=True)
    assert again.experiment_name == "one"


def count_writes(monkeypatch: pytest.MonkeyPatch, hook: Callable[[int, Callable[[], Any]], Any]) -> list[str]:
    """Send every write of the client through `hook(number, call)`; returns the growing list of the names called."""
    import mlflow

    names: list[str] = []

    def wrapped(name: str) -> Callable[..., Any]:
        original = getattr(mlflow.MlflowClient, name)

        def write(*args: Any, **kwargs: Any) -> Any:
            names.append(name)
            return hook(len(names), lambda: original(*args, **kwargs))

        return write

    for name in WRITES:
        monkeypatch.setattr(mlflow.MlflowClient, name, wrapped(name))
    return names


@pytest.mark.parametrize("answered", ["refused", "answer lost"])
def test_a_fault_at_any_kind_of_write_is_finished_by_the_next_call(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: str
) -> None:
    from mlflow.exceptions import MlflowException

    failing = 0

    def hook(number: int, call: Callable[[], Any]) -> Any:
        if number != failing:
            return call()
        if answered == "answer lost":
            call()
        raise MlflowException("the server went away")

    with monkeypatch.context() as patch:
        names = count_writes(patch, hook)
        whole = sample.folder(tmp_path / "whole", audit_of(local, f"whole {answered}"))
        mlflow_run.log(whole, tracking_uri=local.uri, experiment=None)
    assert set(names) >= set(WRITES) - {"create_experiment"}
    for failing in sorted(names.index(name) + 1 for name in set(names)):
        audit = audit_of(local, f"{failing} {answered}")
        folder = sample.folder(tmp_path / str(failing), audit)
        with monkeypatch.context() as patch:
            count_writes(patch, hook)
            with pytest.raises(SinkError, match=r"went away; the result is on disk in .* and `audit push .*` finishes it"):
                mlflow_run.log(folder, tracking_uri=local.uri, experiment=None)
        assert_complete(local, audit, mlflow_run.log(folder, tracking_uri=local.uri, experiment=None))


def test_more_than_a_batch_of_values_is_finished_too(local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = tuple(sample.record(f"m{number}", sample.measured(number / 7, number / 9, number / 5)) for number in range(120))
    audit = audit_of(local, "many", models=(sample.model(model_id=local.model_id, metrics=metrics),))
    audit.manifest.settings.update({f"s{number}": "v" for number in range(150)})
    folder = sample.folder(tmp_path / "out", audit)
    with monkeypatch.context() as patch:
        patch.setattr("audit.sinks.mlflow_run.FILES", None)
        with pytest.raises(SinkError):
            mlflow_run.log(folder, tracking_uri=local.uri, experiment=None)
    assert_complete(local, audit, mlflow_run.log(folder, tracking_uri=local.uri, experiment=None))


def test_older_results_and_references_leave_a_version_alone(local: Store, tmp_path: Path) -> None:
    new = audit_of(local, "new", created="2027-01-01T00:00:00+00:00")
    mlflow_run.log(sample.folder(tmp_path / "new", new), tracking_uri=local.uri, experiment=None)
    old = audit_of(local, "old", models=(sample.model(), dataclasses.replace(sample.model(version="2"), is_reference=True)))
    logged = mlflow_run.log(sample.folder(tmp_path / "old", old), tracking_uri=local.uri, experiment=None)
    assert logged.notes == ("digits, version 1 keeps the tags of a later audit",)
    assert {local.client.get_model_version("digits", version).tags["audit.result_id"] for version in "12"} == {"new"}
    for version in "12":
        local.client.delete_model_version_tag("digits", version, "audit.date")


def test_what_the_server_does_not_know_is_a_note(local: Store, tmp_path: Path) -> None:
    strange = sample.model(name="elsewhere", model_id="m-" + "0" * 32)
    folder = sample.folder(tmp_path / "o", sample.result(strange, identity="x"))
    logged = mlflow_run.log(folder, tracking_uri=local.uri, experiment=None)
    assert len(logged.notes) == 2 and "not linked" in logged.notes[0] and "got no tags" in logged.notes[1]
    assert local.client.get_run(logged.child_run_ids[0]).data.metrics["clean_accuracy"] == 0.96


def test_a_file_model_needs_no_registry(local: Store, tmp_path: Path) -> None:
    audit = sample.result(sample.model(name="net.onnx", version=None), identity="file")
    assert mlflow_run.log(sample.folder(tmp_path / "o", audit), tracking_uri=local.uri, experiment=None).notes == ()


def test_an_experiment_in_the_trash(local: Store, tmp_path: Path) -> None:
    local.client.delete_experiment(local.client.create_experiment("thrown away"))
    folder = sample.folder(tmp_path / "o", sample.result(identity="trash"))
    with pytest.raises(SinkError, match="'thrown away' is in the trash; restore it"):
        mlflow_run.log(folder, tracking_uri=local.uri, experiment="thrown away")


def test_full_disk(local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mlflow.MlflowClient, "log_artifact", full)
    with pytest.raises(SinkError, match="the disk of its store is full; free some space"):
        mlflow_run.log(sample.folder(tmp_path / "o", sample.result(identity="disk")), tracking_uri=local.uri, experiment=None)


def test_no_result_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no"):
        mlflow_run.log(tmp_path, tracking_uri=None, experiment=None)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_nobody_listens(tmp_path: Path) -> None:
    folder = sample.folder(tmp_path / "out dir", sample.result())
    started = time.monotonic()
    with pytest.raises(SinkError) as caught:
        mlflow_run.log(folder, tracking_uri=f"http://ann:hunter2@127.0.0.1:{free_port()}", experiment=None)
    message = str(caught.value)
    assert "cannot be reached" in message and f"`audit push '{folder}' --tracking-uri http://127.0.0.1:" in message
    assert message.endswith("` finishes it")
    assert "hunter2" not in message and "\n" not in message
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "wants a login (401); set MLFLOW_TRACKING_USERNAME"), (403, "refuses this login (403)"), (404, "error code 404")],
)
def test_a_server_that_refuses(tmp_path: Path, status: int, words: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>no</html>")

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(SinkError) as caught:
            uri = f"http://127.0.0.1:{server.server_port}"
            mlflow_run.log(sample.folder(tmp_path / "o", sample.result()), tracking_uri=uri, experiment=None)
    finally:
        server.shutdown()
        server.server_close()
    assert words in str(caught.value)


def test_a_server_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(SinkError, match="did not answer in time; check that it is running"):
            uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
            mlflow_run.log(sample.folder(tmp_path / "o", sample.result()), tracking_uri=uri, experiment=None)
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "1"


def test_check_store_makes_nothing(local: Store, tmp_path: Path) -> None:
    assert mlflow_run.check_store(local.uri) == f"{local.uri} answers"
    assert "does not exist yet" in mlflow_run.check_store(f"sqlite:///{tmp_path}/new.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SinkError, match="cannot be written to"):
        mlflow_run.check_store(f"sqlite:///{tmp_path}/no/such/new.db")
    with pytest.raises(SinkError, match="cannot be reached"):
        mlflow_run.check_store(f"http://127.0.0.1:{free_port()}")


class Server:
    """A real `mlflow server` on loopback, to be killed and started again on the same store."""

    def __init__(self, place: Path) -> None:
        self.place, self.port = place, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1", "--port", str(self.port),
            "--backend-store-uri", f"sqlite:///{self.place}/mlflow.db", "--artifacts-destination", str(self.place / "artifacts"),
        ]  # fmt: skip
        with (self.place / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.place, start_new_session=True)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.uri}/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.2)
        raise AssertionError((self.place / "log").read_text()[-2000:])

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    import mlflow

    running, before = Server(tmp_path_factory.mktemp("server")), mlflow.get_tracking_uri()
    running.start()
    yield running
    running.kill()
    mlflow.set_tracking_uri(before)


@pytest.mark.slow
def test_a_server_killed_while_logging(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill(server.uri)
    audit = audit_of(store, "killed")
    folder = sample.folder(tmp_path / "out", audit)

    def hook(number: int, call: Callable[[], Any]) -> Any:
        if names.count("log_batch") == 2:
            server.kill()
        return call()

    with monkeypatch.context() as patch:
        names = count_writes(patch, hook)
        started = time.monotonic()
        with pytest.raises(SinkError, match=r"cannot be reached; .* the result is on disk in .*`audit push"):
            mlflow_run.log(folder, tracking_uri=server.uri, experiment="nightly")
        assert time.monotonic() - started < 30
    assert names.count("create_run") == 3 and names[-1] == "log_batch"
    server.start()
    half = runs_of(store, audit)
    assert len(half) == 3 and not any("audit.complete" in run.data.tags for run in half)
    logged = mlflow_run.log(folder, tracking_uri=server.uri, experiment=None)
    assert_complete(store, audit, logged)
    assert logged.parent_run_id in {run.info.run_id for run in half} and logged.experiment_name == "nightly"
    assert logged.open_hint.startswith(f"{server.uri}/#/experiments/{logged.experiment_id}/runs/{logged.parent_run_id}?")
    again = mlflow_run.log(folder, tracking_uri=server.uri, experiment=None)
    assert again == dataclasses.replace(logged, was_complete=True)
    assert_complete(store, audit, again)
