"""Audits of models that are only asked: a running `mlflow models serve`, a Python function, one that says labels only."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scripted_server import Asked, Reply, serving

from audit.cli import cli
from audit.models import endpoint_http
from audit.result import AuditResult, from_json

LABELS_ONLY = "the model answers with labels only, without scores"
# Least squares on the digits themselves: right on most of them, and fast. It counts the images that it is asked about.
SOURCE = """
    import os

    import numpy as np
    from sklearn.datasets import load_digits

    pixels, labels_ = load_digits(return_X_y=True)
    weights = np.linalg.lstsq(np.c_[pixels / 16, np.ones(len(pixels))], 8 * np.eye(10)[labels_], rcond=None)[0]
    weights[20, 3] += float(os.environ.get("NUDGE", 0))
    asked = 0

    def scores(images):
        global asked
        asked += len(images)
        return np.c_[images.reshape(len(images), -1), np.ones(len(images))] @ weights

    def labels(images):
        return scores(images).argmax(1)

    def words(images):
        return [str(label) for label in labels(images)]
"""

# What was asked first, by the value of the pixels, is answered as before; the rest one class further.
LATE = (
    SOURCE
    + """
    first = set()
    calls = 0

    def labels(images):
        global calls
        found, calls = scores(images).argmax(1), calls + 1
        known = np.array([image.tobytes() in first for image in images])
        if calls == 5:  # the four looks at noise are over: this is the first block of the sample
            first.update(image.tobytes() for image in images)
            return found
        return np.where(known | ("WORSE" not in os.environ), found, (found + 1) % 10)
"""
)


def audit(*arguments: object):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def run(model: str, out: Path, *arguments: object):
    return audit("run", model, "--data", "digits:test", "--no-mlflow", "--no-pdf", "--quiet", "--out", out, "--trust", *arguments)


def result_of(folder: Path) -> AuditResult:
    return from_json((folder / "result.json").read_bytes())


def outcomes(folder: Path) -> dict[str, object]:
    (model,) = result_of(folder).models
    return {record.key: record.outcome for record in model.metrics}


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder; whatever was imported of it is forgotten before and after."""
    Path("digits_function.py").write_text(textwrap.dedent(SOURCE))
    before = list(sys.path)
    yield "digits_function"
    sys.modules.pop("digits_function", None)
    sys.path[:] = before


@pytest.fixture(scope="module")
def server(digits_store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running MLflow scoring server over the standard digits network, logged as ONNX; its address."""
    import mlflow
    import onnx

    folder = tmp_path_factory.mktemp("served") / "model"
    mlflow.onnx.save_model(onnx.load(digits_store.onnx_standard), str(folder), pip_requirements=["onnx"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(folder), "--env-manager", "local"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        [*words, "-h", "127.0.0.1", "-p", str(port), "-w", "1"],
        env={**os.environ, "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/version", process)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "the scoring server ended"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError("the scoring server does not start")


@pytest.mark.slow
@pytest.mark.usefixtures("few_examples")
def test_a_running_scoring_server_gives_the_audit_of_its_model(server: str, digits_store, tmp_path: Path) -> None:
    over_http, from_file = tmp_path / "http", tmp_path / "file"
    assert run(server, over_http, "--samples", "40").exit_code == 0
    assert run(str(digits_store.onnx_standard), from_file, "--samples", "40", "--black-box").exit_code == 0
    served, local = (pq.read_table(folder / "examples.parquet").to_pydict() for folder in (over_http, from_file))
    assert served["id"] == local["id"] and served["predicted"] == local["predicted"]
    assert served["confidence"] == pytest.approx(local["confidence"], abs=1e-5)
    remote, own = outcomes(over_http), outcomes(from_file)
    assert remote.keys() == own.keys()
    assert {key: outcome.kind for key, outcome in remote.items()} == {key: outcome.kind for key, outcome in own.items()}
    assert remote["clean_accuracy"] == own["clean_accuracy"]
    # One example of forty may fall on the other side of a boundary, where the server's threads add in another order.
    for key in ("adversarial_accuracy_black_box/linf_8-255", "accuracy_epsilon_curve/at_16-255/linf_8-255"):
        assert remote[key].value == pytest.approx(own[key].value, abs=1 / 40 + 1e-9)
    (model,) = result_of(over_http).models
    assert model.identity.device == "remote" and "MLflow scoring server" in model.identity.runtime
    assert (over_http / "report.html").exists() and not (over_http / "report.pdf").exists()


@pytest.mark.slow
def test_no_weights_come_into_the_process(server: str, tmp_path: Path) -> None:
    code = (
        "import sys; from audit.cli import cli; cli(sys.argv[1:], standalone_mode=False);"
        "print([name for name in ('onnxruntime', 'mlflow.onnx', 'mlflow.pytorch', 'mlflow.pyfunc') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, "plan", server, "--data", "digits:test", "--samples", "32"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert "images sent, padding included" in done.stdout


def test_a_function_is_audited_from_queries(function: str, tmp_path: Path) -> None:
    done = run(f"{function}:scores", tmp_path / "out", "--samples", "40")
    assert done.exit_code == 0, done.output
    kinds = {key: outcome.kind for key, outcome in outcomes(tmp_path / "out").items()}
    assert kinds["adversarial_accuracy_black_box/linf_8-255"] == kinds["fisher_trace_estimate"] == "measured"
    assert kinds["adversarial_accuracy_white_box/linf_8-255"] == kinds["fisher_trace"] == "not_applicable"
    plan = audit("plan", f"{function}:scores", "--data", "digits:test", "--samples", "40", "--trust", "--json")
    before = sys.modules[function].asked
    sys.modules[function].asked = 0
    assert run(f"{function}:scores", tmp_path / "again", "--samples", "40").exit_code == 0
    # What the plan announces covers what is really sent, and not by orders of magnitude.
    (announced,) = json.loads(plan.output)
    assert before and sys.modules[function].asked <= announced["queries_at_most"] < 3 * sys.modules[function].asked


def test_nothing_that_needs_scores_is_measured_from_labels(function: str, tmp_path: Path) -> None:
    out, scored = tmp_path / "labels", tmp_path / "scores"
    done = run(f"{function}:labels", out, "--samples", "40")
    assert done.exit_code == 0, done.output
    assert run(f"{function}:scores", scored, "--samples", "40").exit_code == 0
    found = outcomes(out)
    assert found.pop("clean_accuracy") == outcomes(scored)["clean_accuracy"]
    measured = {key.partition("/")[0] for key, outcome in found.items() if outcome.kind == "measured"}
    assert measured == {
        *("adversarial_accuracy_black_box", "accuracy_epsilon_curve"),
        *("empirical_boundary_distance", "certified_accuracy", "average_certified_radius"),
        *(
            "unnormalised_mean_corruption_error",
            "clean_subtracted_corruption_error",
            "corruption_error",
            "corruption_error_by_severity",
        ),
        *("mean_flip_probability", "flip_probability"),
    }
    assert {outcome.kind for outcome in found.values()} == {"measured", "not_applicable"}
    for key in ("fitted_temperature", "saturated_share", "fisher_trace_estimate", "attack_success_rate/linf_8-255"):
        assert found[key].because == LABELS_ONLY
    (model,) = result_of(out).models
    assert model.identity.outputs == "labels only" and model.failures
    assert {failure.attack for failure in model.failures} <= {
        "nearest error by HopSkipJump-200",
        "random noise, 10 draws",
        "HopSkipJump-500",
    }
    assert {(failure.clean_confidence, failure.adversarial_confidence) for failure in model.failures} == {(None, None)}
    assert {score.dimension for score in model.scores if score.outcome.kind == "measured"} == {
        "clean",
        "adversarial",
        "corruption",
        "stability",
    }
    assert "HopSkipJump-500" in (out / "report.html").read_text()
    checks = {check.number: check for check in model.checks}
    assert checks[15].status == "not_run" and checks[15].found == LABELS_ONLY
    assert checks[10].status == "pass" and checks[10].found == "five identical calls gave the same labels"
    table = pq.read_table(out / "examples.parquet").to_pydict()
    assert set(table["confidence"]) == set(table["saturated_share"]) == {None}
    assert table["predicted"] == pq.read_table(scored / "examples.parquet").to_pydict()["predicted"]
    # Names instead of indices mean the same classes.
    assert run(f"{function}:words", tmp_path / "words", "--samples", "40").exit_code == 0
    assert outcomes(tmp_path / "words")["clean_accuracy"] == outcomes(out)["clean_accuracy"]


def test_a_spent_budget_ends_the_stages_and_can_be_gone_on_from(function: str, tmp_path: Path) -> None:
    planned = audit("plan", f"{function}:scores", "--data", "digits:test", "--samples", "40", "--trust", "--max-queries", "2000")
    assert planned.exit_code == 0 and "more than --max-queries 2000" in planned.stderr
    done = run(f"{function}:scores", tmp_path / "out", "--samples", "40", "--max-queries", "2000")
    assert done.exit_code == 1 and "--max-queries 2000" in done.output
    assert sys.modules[function].asked <= 4000, "the plan and the run, each within its own budget"
    found = outcomes(tmp_path / "out")
    assert found["clean_accuracy"].kind == found["fitted_temperature"].kind == "measured"
    failed = {key for key, outcome in found.items() if outcome.kind == "failed"}
    assert "adversarial_accuracy_black_box/linf_8-255" in failed and "fisher_trace_estimate" in failed
    assert all("images were sent, and one more call would exceed" in found[key].error for key in failed)
    again = run(f"{function}:scores", tmp_path / "whole", "--samples", "40", "--reuse", tmp_path / "out")
    assert again.exit_code == 0
    refused = run(f"{function}:scores", tmp_path / "none", "--samples", "40", "--max-queries", "100")
    assert refused.exit_code == 2 and "96 images were sent" in refused.output and not (tmp_path / "none/result.json").exists()


def test_limits_that_change_nothing_are_said(
    digits_store, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("audit"), "propagate", True)
    words = ("plan", str(digits_store.onnx_standard), "--data", "digits:test", "--samples", "20")
    assert audit(*words).exit_code == 0 and "--max-queries" not in caplog.text
    assert audit(*words, "--rate-limit", "3").exit_code == 0
    assert "is read from files: --max-queries and --rate-limit change nothing for it" in caplog.text


def test_a_server_that_dies_on_the_way_costs_what_it_did_not_answer(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_http, "sleep", lambda _: None)
    monkeypatch.syspath_prepend(Path.cwd())
    scores = importlib.import_module(function).scores
    answered = []

    def respond(asked: Asked) -> Reply:
        if asked.method == "GET":
            return Reply(status=404)
        answered.append(asked)
        if len(answered) > 100:
            return Reply(status=503, content={"error": "no worker\nsecond line"})
        return Reply(content={"predictions": scores(np.array(asked.json["inputs"])).tolist()})

    with serving(respond) as server:
        done = run(f"{server.url}/invocations", tmp_path / "out", "--samples", "40")
    assert done.exit_code == 1 and "(503): no worker" in done.output and "second line" not in done.output
    found = outcomes(tmp_path / "out")
    assert found["clean_accuracy"].kind == "measured"
    assert found["attack_success_rate/linf_8-255"].kind == found["fisher_trace_estimate"].kind == "failed"
    # Every stage tries anew, for the server may be back; none of them asks image by image.
    assert len(answered) <= 100 + 5 * 9


def test_evidence_of_a_model_that_has_changed_is_not_taken(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(f"{function}:scores", tmp_path / "out", "--samples", "40").exit_code == 0

    def reused() -> int:
        sys.modules.pop(function)
        words = ("plan", f"{function}:scores", "--data", "digits:test", "--samples", "40", "--trust", "--json")
        (plan,) = json.loads(audit(*words, "--reuse", tmp_path / "out").output)
        return sum(stage["chunks_reused"] for stage in plan["stages"] if stage["evidence"] != "predictions")

    assert reused() == 12
    # The same source, other weights: only the answers tell.
    monkeypatch.setenv("NUDGE", "0.001")
    assert reused() == 0


def test_labels_that_differ_late_in_the_sample_are_another_model(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The source, the classes and the answers to the first 32 images are the same: 160 later answers are not.
    Path(f"{function}.py").write_text(textwrap.dedent(LATE))
    words = (f"{function}:labels", tmp_path / "old", "--samples", "200", "--allow-chance")
    assert run(*words).exit_code == 0
    sys.modules.pop(function)
    monkeypatch.setenv("WORSE", "1")
    assert run(words[0], tmp_path / "new", *words[2:], "--reuse", tmp_path / "old").exit_code == 0
    assert outcomes(tmp_path / "old")["clean_accuracy"].value > 0.85
    assert outcomes(tmp_path / "new")["clean_accuracy"].value < 0.25


def test_a_function_is_refused_without_trust(function: str, tmp_path: Path) -> None:
    done = audit("run", f"{function}:scores", "--data", "digits:test", "--no-mlflow", "--no-pdf", "--out", tmp_path / "out")
    assert done.exit_code == 2 and "--trust" in done.output and function not in sys.modules


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_the_limits_are_in_the_help(verb: str) -> None:
    text = " ".join(audit(verb, "--help").output.split())
    assert "--max-queries" in text and "Images to send to an endpoint or a function at most" in text
    assert "--rate-limit" in text and "Calls per second" in text
    for wrong in (("--max-queries", "0"), ("--rate-limit", "0"), ("--rate-limit", "often")):
        assert audit(verb, "x:y", "--data", "digits", *wrong).exit_code == 2
