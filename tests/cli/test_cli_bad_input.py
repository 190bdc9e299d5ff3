"""Bad input: one sentence, exit code 2, nothing lost, no stack trace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from audit.cli import cli
from audit.engine import folder as result_folder


def refused(*arguments, words: str, code: int = 2):
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert words in done.output
    assert "Traceback" not in done.output
    errors = [line for line in done.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    return done


@pytest.fixture
def model(digits_store):
    return digits_store.onnx_standard


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("absent.onnx", "absent.onnx"),
        ("models:/digits/99", "99"),
        ("models:/digits@nobody", "nobody"),
        ("models:/absent/1", "absent"),
        ("models:/", "models:/"),
        ("model.pt", "model.pt"),
        ("http://127.0.0.1:9/invocations", "cannot be reached (connection refused)"),
        ("https://ann:hunter2@host/invocations", "carries credentials"),
        ("package.module:function", "--trust"),
    ],
)
def test_models_that_are_not_there(digits_store, reference, words):
    refused("run", reference, "--data", "digits", "--tracking-uri", digits_store.uri, "--out", "out", words=words)
    assert not Path("out", "result.json").exists()


@pytest.mark.parametrize(("data", "words"), [("absent", "absent"), (".", "class folder"), ("x.csv", "x.csv")])
def test_data_that_is_not_there(model, data, words):
    Path("x.csv").write_text("a,b\n")
    refused("run", model, "--data", data, words=words)


def test_an_unreadable_image_is_named(model):
    for label in range(2):
        Path(f"images/{label}").mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"images/{label}/good.png")
    Path("images/1/bad.png").write_bytes(b"no image")
    refused("run", model, "--data", "images", words="bad.png")


def save(labels, images=None):
    images = np.zeros((len(labels), 8, 8), dtype=np.uint8) if images is None else images
    np.savez("data.npz", images=images, labels=np.asarray(labels))
    return "data.npz"


def test_labels_outside_the_models_classes(model):
    refused("run", model, "--data", save([0, 1, 12]), words="label 12")


def test_images_of_another_size(model):
    refused("run", model, "--data", save([0, 1], np.zeros((2, 9, 9), dtype=np.uint8)), words="9")


def test_a_model_at_chance_stops_the_run_and_says_what_to_check(model):
    images = np.random.default_rng(0).integers(0, 255, (60, 8, 8)).astype(np.uint8)
    data = save(np.arange(60) % 10, images)
    refused("run", model, "--data", data, words="normalisation")


def test_one_example_cannot_beat_chance_unless_allowed(model):
    from audit import data as datasets

    digits = datasets.load("digits:test")
    data = save(digits.labels[:1], np.rint(digits.images([0]) * 255).astype(np.uint8))
    refused("run", model, "--data", data, words="--allow-chance")
    done = CliRunner().invoke(cli, ["run", str(model), "--data", data, "--allow-chance", "--no-mlflow", "--no-pdf", "--out", "out"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--threat", "8/255"), "norm:epsilon"),
        (("--threat", "linf:8"), "outside [0, 1]"),
        (("--policy", "absent.toml"), "absent.toml"),
        (("--input-spec", "layuot=NCHW"), "layout"),
        (("--corrupted", "absent"), "there is no 'absent'"),
        (("--device", "cuda"), "--device cuda cannot be honoured"),
    ],
)
def test_options_that_cannot_be_honoured(model, more, words):
    import torch

    if "cuda" in more and torch.cuda.is_available():
        pytest.skip("this machine has the GPU that is asked for")
    refused("run", model, "--data", "digits:test", "--out", "out", *more, words=words)


def test_an_output_folder_with_other_files_is_left_alone(model):
    Path("home").mkdir()
    Path("home/thesis.tex").write_text("x")
    refused("run", model, "--data", "digits:test", "--out", "home", words="other files")
    assert Path("home/thesis.tex").exists()


def test_a_nearly_full_disk_is_found_out_before_the_work(model, monkeypatch):
    usage = shutil.disk_usage(".")
    monkeypatch.setattr(result_folder.shutil, "disk_usage", lambda _: usage._replace(free=1_000_000))
    refused("run", model, "--data", "digits:test", "--out", "out", words="1 MB are free")


def test_a_disk_that_fills_up_loses_nothing(model, monkeypatch):
    written = result_folder.write

    def full(result, folder):
        if folder == Path("out"):
            raise OSError(28, "No space left on device")
        return written(result, folder)

    monkeypatch.setattr(result_folder, "write", full)
    done = CliRunner().invoke(
        cli, ["run", str(model), "--data", "digits:test", "--samples", "40", "--out", "out", "--no-mlflow", "--no-pdf", "--quiet"]
    )
    assert done.exit_code == 3, done.output
    assert "No space left on device" in done.output
    named = [line for line in done.output.splitlines() if line.endswith("result.json")]
    assert Path(named[0]).exists()


def test_a_result_that_is_none(tmp_path):
    refused("report", tmp_path, words="result.json")
    (tmp_path / "result.json").write_text("{")
    refused("report", tmp_path, words="result.json")
    refused("push", tmp_path, words="result.json")


def test_control_c_keeps_what_was_measured(model, tmp_path):
    command = [sys.executable, "-m", "audit", "run", str(model), "--data", "digits:test", "--samples", "800"]
    command += ["--profile", "standard", "--out", "out", "--no-mlflow"]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # A test run in the background of a shell ignores interrupts, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "predictions" in line:
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "audit report out" in errors
    from audit.result import from_json

    result = from_json(Path("out/result.json").read_bytes())
    assert result.models[0].metric("clean_accuracy").outcome.kind == "measured"
    assert any(record.outcome.kind == "failed" and "interrupted" in record.outcome.error for record in result.models[0].metrics)
    # What goes on from it is another result: a store that took the part must not take the whole for it.
    assert not Path("out/journal/id.decision").exists()
