"""`--surrogate` and `--eot` from the command line, and that `--max-queries` can rely on what the plan announces."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from audit.cli import cli
from audit.result import from_json

SOURCE = """
    import numpy as np
    from sklearn.datasets import load_digits

    pixels, labels_ = load_digits(return_X_y=True)
    weights = np.linalg.lstsq(np.c_[pixels / 16, np.ones(len(pixels))], 8 * np.eye(10)[labels_], rcond=None)[0]
    asked = 0
    noise = np.random.default_rng(0)

    def scores(images):
        global asked
        asked += len(images)
        return np.c_[images.reshape(len(images), -1), np.ones(len(images))] @ weights

    def labels(images):
        return scores(images).argmax(1)

    def random_scores(images):
        return scores(images) + noise.normal(size=(len(images), 10))

    def random_labels(images):
        return random_scores(images).argmax(1)
"""


def audit(*arguments: object):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def run(model: object, out: Path, *arguments: object):
    given = ("--data", "digits:test", "--no-mlflow", "--no-pdf", "--quiet", "--out", out, "--trust", "--samples", "40")
    return audit("run", model, *given, *arguments)


def model_of(folder: Path):
    (model,) = from_json((folder / "result.json").read_bytes()).models
    return model


@pytest.fixture
def function() -> Iterator[str]:
    Path("digits_answers.py").write_text(textwrap.dedent(SOURCE))
    before = list(sys.path)
    yield "digits_answers"
    sys.modules.pop("digits_answers", None)
    sys.path[:] = before


@pytest.mark.parametrize(
    ("answers", "more"),
    [
        ("scores", ()),
        ("labels", ()),
        ("random_scores", ("--eot", "3")),
        ("random_labels", ("--eot", "3")),
    ],
)
def test_no_more_is_sent_than_the_plan_announces(function: str, tmp_path: Path, answers: str, more: tuple[str, ...]) -> None:
    threats = ("--threat", "linf:0.03", "--threat", "l2:0.3", "--threat", "l1:1")
    words = ("plan", f"{function}:{answers}", "--data", "digits:test", "--samples", "40", "--trust", "--json", *threats, *more)
    (announced,) = json.loads(audit(*words).stdout)
    sys.modules[function].asked = 0
    done = run(f"{function}:{answers}", tmp_path / "out", *threats, *more, "--max-queries", announced["queries_at_most"])
    assert done.exit_code == 0, done.output
    assert sys.modules[function].asked <= announced["queries_at_most"] < 3 * sys.modules[function].asked
    model = model_of(tmp_path / "out")
    measured = {record.key for record in model.metrics if record.outcome.kind == "measured"}
    assert {f"adversarial_accuracy_black_box/{key}" for key in ("linf_0.03", "l2_0.3", "l1_1")} <= measured
    assert model.identity.averaged == (3 if more else 1)
    assert announced["skipped"]["transfer attacks"] == "no surrogate was given (--surrogate MODEL)"
    assert model.skipped["transfer attacks"] == announced["skipped"]["transfer attacks"]


def test_a_random_model_says_how_to_audit_it(function: str, tmp_path: Path) -> None:
    done = run(f"{function}:random_scores", tmp_path / "out")
    assert done.exit_code == 0, done.output
    outcome = next(record.outcome for record in model_of(tmp_path / "out").metrics if record.id == "adversarial_accuracy_black_box")
    assert outcome.kind == "not_applicable" and "--eot K" in outcome.because
    assert audit("run", "x:y", "--data", "digits", "--eot", "1").exit_code == 2


def test_a_surrogate_adds_transfer_to_the_black_box_arm(digits_store, tmp_path: Path) -> None:
    given = ("--black-box", "--threat", "linf:0.15")
    done = run(digits_store.onnx_standard, tmp_path / "out", *given, "--surrogate", digits_store.onnx_adversarial)
    assert done.exit_code == 0, done.output
    model = model_of(tmp_path / "out")
    (cascade,) = model.cascades
    names = [stage.attack for stage in cascade.stages]
    assert names[1:3] == ["transfer from adversarial: PGD-20 cross-entropy", "transfer from adversarial: PGD-20 margin"]
    assert sum(stage.broken for stage in cascade.stages[1:3]) > 0, "an adversarially trained network is a good surrogate"
    assert re.fullmatch(r"adversarial \(sha256 [0-9a-f]{12}\)", model.identity.surrogate)
    assert "transfer attacks" not in model.skipped and model.backward_passes == 0
    assert "transfer from adversarial" in (tmp_path / "out/report.html").read_text()
    # Another surrogate, or none: the black-box evidence is not taken over, the rest is.
    for more, reused in ((("--surrogate", digits_store.onnx_adversarial), True), ((), False)):
        words = ("plan", digits_store.onnx_standard, "--data", "digits:test", "--samples", "40", "--json", *given, *more)
        (plan,) = json.loads(audit(*words, "--reuse", tmp_path / "out").stdout)
        stages = {stage["evidence"].partition("/")[0]: stage["chunks_reused"] for stage in plan["stages"]}
        assert stages["reference_attack"] == 1 and stages["worst_case_black_box"] == stages["accuracy_epsilon"] == int(reused)


def test_a_model_is_no_surrogate_of_itself(digits_store, tmp_path: Path) -> None:
    words = ("--data", "digits:test", "--samples", "40", "--json", "--reference", digits_store.onnx_adversarial)
    done = audit("plan", digits_store.onnx_standard, *words, "--surrogate", digits_store.onnx_adversarial)
    first, second = json.loads(done.stdout)
    assert "transfer attacks" not in first["skipped"]
    assert second["skipped"]["transfer attacks"] == "the surrogate is this model itself"


def test_a_surrogate_that_cannot_serve_is_refused(digits_store, function: str, tmp_path: Path) -> None:
    few = tmp_path / "few.onnx"
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)).eval()
    example = (torch.zeros(2, 1, 8, 8),)
    torch.onnx.export(
        network,
        example,
        few,
        dynamic_shapes=({0: torch.export.Dim("n")},),
        external_data=False,
        verbose=False,
        input_names=["image"],
    )
    for surrogate, words in (
        (f"{function}:scores", "has no gradients to craft transfer attacks with"),
        ("https://example.invalid/invocations", "is an endpoint, which gives no gradients"),
        (few, "knows 3 classes and"),
        ("nothing", "nothing"),
    ):
        done = run(digits_store.onnx_standard, tmp_path / "out", "--surrogate", surrogate)
        assert done.exit_code == 2 and words in done.output and "Traceback" not in done.output, done.output
    assert not (tmp_path / "out/result.json").exists()
