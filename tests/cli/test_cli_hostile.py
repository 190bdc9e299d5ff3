"""What users, schedulers, disks and models do to an audit: nothing measured is lost, no stack trace, the right exit code."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from policy_text import open_policy

from audit.cli import cli, output
from audit.cli.options import settings_of
from audit.engine import table
from audit.engine.folder import prepare_folder, put_back, set_aside
from audit.engine.journal import is_unfinished
from audit.models.onnx_file import OnnxClassifier
from audit.result import from_json
from audit.sinks import report
from audit.sinks.mlflow_server import push_command

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def audit(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def small(model, *more, data="digits:test", out="out"):
    return audit(
        "run", model, "--data", data, "--samples", "40", "--threat", "linf:0.1", "--out", out, "--no-mlflow", "--no-pdf", *more
    )


def result(folder="out"):
    return from_json(Path(folder, "result.json").read_bytes())


@pytest.fixture
def model(digits_store):
    return digits_store.onnx_standard


def an_earlier_result(folder="out"):
    Path(folder, "failures").mkdir(parents=True)
    for name in ("result.json", "report.html", "failures/0.png"):
        Path(folder, name).write_text("earlier")


@pytest.mark.parametrize("wrong", ["models:/digits/99", "absent.onnx"])
def test_a_mistyped_model_leaves_the_earlier_result_in_the_folder(digits_store, wrong):
    an_earlier_result()
    done = audit("run", wrong, "--data", "digits:test", "--out", "out", "--tracking-uri", digits_store.uri)
    assert done.exit_code == 2, done.output
    assert Path("out/result.json").read_text() == Path("out/failures/0.png").read_text() == "earlier"
    assert not is_unfinished(Path("out")), "the corrected command must not be refused"


def test_a_model_that_is_refused_after_a_look_leaves_the_earlier_result_too(model):
    an_earlier_result()
    labels = np.arange(60) % 10
    np.savez("noise.npz", images=np.random.default_rng(0).integers(0, 255, (60, 8, 8)).astype(np.uint8), labels=labels)
    done = small(model, data="noise.npz")
    assert done.exit_code == 2, done.output
    assert Path("out/report.html").read_text() == "earlier"
    assert not is_unfinished(Path("out"))


def test_what_was_set_aside_survives_an_audit_that_was_killed():
    an_earlier_result()
    Path("out/journal").mkdir()
    set_aside(Path("out"))
    assert not Path("out/result.json").exists()
    Path("out/result.json").write_text("of the audit that is killed now")
    set_aside(Path("out"))
    put_back(Path("out"))
    assert Path("out/result.json").read_text() == Path("out/failures/0.png").read_text() == "earlier"
    assert {path.name for path in Path("out").iterdir()} == {"result.json", "report.html", "failures", "journal"}


def test_files_that_a_killed_writer_left_do_not_bar_the_folder():
    Path("out").mkdir()
    Path("out/result.json.partial").write_text("{")
    Path("out/report.pdf.partial").write_text("%PDF")
    assert prepare_folder(Path("out"), resume=False) == Path("out")


@pytest.mark.usefixtures("few_metrics")
def test_control_c_while_rendering_says_how_to_finish(model, monkeypatch):
    def stopped(_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "render", stopped)
    done = audit(
        *("run", model, "--data", "digits:test", "--samples", "40", "--out", "out"),
        *("--tracking-uri", "sqlite:///else.db", "--experiment", "my audits"),
    )
    assert done.exit_code == 130, done.output
    assert "audit report out, then audit push out --tracking-uri sqlite:///else.db --experiment 'my audits'" in done.output
    assert result().models[0].metric("clean_accuracy").outcome.kind == "measured"


@pytest.mark.usefixtures("few_metrics")
def test_a_page_that_cannot_be_drawn_costs_the_page_only(model, monkeypatch):
    def broken(_, **__):
        raise ZeroDivisionError("by a hostile name")

    monkeypatch.setattr(report, "render", broken)
    done = small(model)
    assert done.exit_code == 3, done.output
    assert "the report was not rendered: ZeroDivisionError: by a hostile name" in done.output
    assert "Traceback" not in done.output


def test_sigterm_keeps_what_was_measured(model):
    command = [sys.executable, "-m", "audit", "run", str(model), "--data", "digits:test", "--samples", "800"]
    process = subprocess.Popen(
        [*command, "--profile", "standard", "--out", "out", "--no-mlflow"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "predictions" in line:
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert result().models[0].metric("clean_accuracy").outcome.kind == "measured"


@pytest.mark.usefixtures("few_metrics")
def test_json_stays_json_whatever_a_model_prints(model, monkeypatch):
    logits = OnnxClassifier.logits

    def chatty(self, images):
        print("a model says hello")
        return logits(self, images)

    monkeypatch.setattr(OnnxClassifier, "logits", chatty)
    done = small(model, "--json")
    assert done.exit_code == 0, done.output
    assert {json.loads(line)["event"] for line in done.stdout.splitlines()} == {"progress", "done"}
    assert "a model says hello" in done.stderr
    json.loads(audit("plan", model, "--data", "digits:test", "--samples", "40", "--json").stdout)


@pytest.mark.usefixtures("few_metrics")
def test_a_reader_that_has_gone_does_not_stop_the_audit(model, monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(output.click, "echo", gone)
    assert small(model, "--json").exit_code == 0
    assert "failed" not in {record.outcome.kind for record in result().models[0].metrics}


PRINTING = """
import ctypes, os, subprocess, sys
import numpy as np

print("python says hello")
ctypes.CDLL(None).puts(b"C says hello")

def scores(images):
    print("python says hello")
    os.write(1, b"the descriptor says hello\\n")
    subprocess.run([sys.executable, "-c", "print('a child says hello')"])
    ctypes.CDLL(None).puts(b"C says hello")
    return images.reshape(len(images), -1)[:, :10]
"""


@pytest.mark.skipif(sys.platform == "win32", reason="C's standard output")
def test_json_stays_json_whatever_code_below_python_prints(tmp_path):
    Path("printing.py").write_text(PRINTING)
    words = ["plan", "printing:scores", "--data", "digits:test", "--samples", "20", "--trust", "--allow-chance", "--json"]
    done = subprocess.run([sys.executable, "-m", "audit", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["model"] == "printing:scores"
    for who in ("python", "the descriptor", "a child", "C"):
        assert f"{who} says hello" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "audit", "metrics"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["Error: the system refused to read or write: No space left on device"]


def test_letters_that_the_terminal_lacks_are_written_as_codes():
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-m", "audit", "metrics"], capture_output=True, env=environment, check=True)
    assert rb"\u03c1" in done.stdout


def test_a_model_that_ends_the_program_does_not_pass_for_an_audit(model, monkeypatch):
    logits, calls = OnnxClassifier.logits, []

    def ends(self, images):
        calls.append(1)
        if len(calls) > 12:
            raise SystemExit(0)
        return logits(self, images)

    monkeypatch.setattr(OnnxClassifier, "logits", ends)
    done = small(model)
    assert done.exit_code == 1, done.output
    assert "failed: SystemExit: 0" in done.output
    calls.extend([1] * 20)
    assert "ended the program (sys.exit(0))" in audit("plan", model, "--data", "digits:test").output
    assert audit("plan", model, "--data", "digits:test").exit_code == 2


def test_a_disk_that_fills_up_costs_the_images_only(model, monkeypatch):
    def full(*_):
        raise NO_SPACE

    monkeypatch.setattr(table, "save_image", full)
    done = small(model)
    assert done.exit_code == 0, done.output
    examined = result().models[0]
    assert examined.failures and all(
        failure.clean_image is None and failure.adversarial_image is None for failure in examined.failures
    )
    assert examined.corruption_examples and all(example.corrupted_image is None for example in examined.corruption_examples)
    assert examined.sensitive_examples and all(example.direction_image is None for example in examined.sensitive_examples)
    assert not list(Path("out/failures").iterdir())


@pytest.mark.usefixtures("few_metrics")
def test_a_missing_class_folder_is_noticed(model):
    from audit import data

    digits = data.load("digits:test")
    for index in range(80):
        if digits.labels[index] != 8:
            Path(f"images/{digits.labels[index]}").mkdir(parents=True, exist_ok=True)
            pixels = np.rint(255 * digits.images([index])[0, 0]).astype(np.uint8)
            Image.fromarray(pixels).save(f"images/{digits.labels[index]}/{index}.png")
    done = small(model, data="images")
    assert "The data name 9 classes and the model knows 10" in done.output
    assert any("9 classes" in caution for caution in result().models[0].identity.cautions)


@pytest.mark.usefixtures("few_metrics")
def test_what_keeps_a_policy_from_passing_is_said(model):
    Path("policy.toml").write_text(open_policy('metric = "clean_accuracy"\nat_least = 0.999'))
    done = small(model, "--policy", "policy.toml")
    assert done.exit_code == 1, done.output
    assert "Clean accuracy ≥ 99.9 %, measured" in done.output


def test_bytes_that_are_no_text_are_refused(model):
    done = audit("run", model, "--data", "images\udcff")
    assert done.exit_code == 2
    assert "not UTF-8 text" in done.output


def test_one_budget_in_two_spellings_is_one_threat():
    texts = ("linf:0.1", "linf:0.10", "linf:1/10", "l2:0.1", "linf:0.2")
    settings = settings_of(profile="quick", threats=texts, samples=None, seed=0, device="cpu")
    assert [str(threat) for threat in settings.threats] == ["linf:0.1", "l2:0.1", "linf:0.2"]


@pytest.mark.parametrize(
    ("uri", "experiment", "environment", "command"),
    [
        (None, None, None, "audit push 'my out'"),
        ("sqlite:///mlflow.db", "audit", None, "audit push 'my out'"),
        ("http://host:5000", None, "http://host:5000", "audit push 'my out'"),
        ("http://host:5000", "a b", None, "audit push 'my out' --tracking-uri http://host:5000 --experiment 'a b'"),
        ("sqlite:///mlflow.db", None, "http://host:5000", "audit push 'my out' --tracking-uri sqlite:///mlflow.db"),
    ],
)
def test_the_push_that_finishes_a_log_goes_to_the_same_place(monkeypatch, uri, experiment, environment, command):
    if environment is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
    assert push_command(Path("my out"), uri, experiment) == command


def test_a_budget_of_zero_draws_a_report_without_warnings(model):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        done = small(model, "--threat", "linf:0")
    assert done.exit_code == 0, done.output
    outcome = result().models[0].metric("adversarial_accuracy_black_box/linf_0").outcome
    assert outcome.value == result().models[0].metric("clean_accuracy").outcome.value


def test_the_doctor_fails_on_a_store_that_cannot_be_made():
    done = audit("doctor", "--tracking-uri", "sqlite:////no/such/folder/mlflow.db")
    assert done.exit_code == 1, done.output
    assert "FAIL  MLflow store" in done.output
