"""The command line end to end: real registry, real ONNX Runtime, real report; then everything that can be wrong with its input."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from policy_text import open_policy

from audit.cli import VERBS, cli
from audit.result import from_json

THREAT = "linf:0.15"


def audit(*arguments: str):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def result_of(folder):
    return from_json((folder / "result.json").read_bytes())


@pytest.fixture(scope="session")
def whole(digits_store, tmp_path_factory):
    """One audit of both registered models with every sink."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = audit(
        *("run", digits_store.standard, digits_store.adversarial, "--data", "digits:test", "--threat", THREAT),
        *("--samples", "120", "--out", out, "--tracking-uri", digits_store.uri, "--experiment", "tests"),
    )
    assert done.exit_code == 0, done.output
    return out, done


def test_help_answers_without_anything_heavy():
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "audit", "--help"], capture_output=True, text=True, check=True)
    assert all(verb in done.stdout for verb in VERBS)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"torch", "mlflow", "numpy", "scipy", "matplotlib", "pydantic", "onnxruntime", "rich"}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    done = audit(verb, "--help")
    assert done.exit_code == 0
    assert "Usage:" in done.output


def test_the_audit_leaves_every_file_and_says_where(whole):
    out, done = whole
    for name in ("result.json", "examples.parquet", "report.html", "report.pdf"):
        assert (out / name).stat().st_size > 1000
        assert name in done.output
    assert "MLflow run" in done.output


def test_the_robust_twin_ranks_first_under_attack(whole):
    ranking = result_of(whole[0]).rankings[1]
    assert ranking.metric == "adversarial_accuracy_white_box/linf_0.15"
    assert [(row.model, row.rank_low, row.rank_high) for row in ranking.rows] == [(1, 1, 1), (0, 2, 2)]


def test_every_value_is_measured_or_says_why(whole):
    for model in result_of(whole[0]).models:
        assert len(model.metrics) == 126
        missing = {record.key for record in model.metrics if record.outcome.kind == "not_applicable"}
        # No reference model was given, and the images are grey.
        relative = {"mean_corruption_error", "relative_mean_corruption_error", "mean_flip_rate"}
        beside = {record.key for record in model.metrics if record.family == "Beside the reference"}
        assert len(beside) == 10 and missing >= relative | beside | {"corruption_error/saturate"}
        assert {record.outcome.kind for record in model.metrics if record.key not in missing} <= {"measured", "undefined"}
        assert {score.dimension for score in model.scores if score.outcome.kind == "measured"} >= {"corruption", "stability"}


def test_table_and_metrics_agree(whole):
    out, _ = whole
    table = pq.read_table(out / "examples.parquet").to_pydict()
    for index, model in enumerate(result_of(out).models):
        rows = [row for row, owner in enumerate(table["model"]) if owner == index]
        assert len(rows) == 120
        clean = np.mean([table["correct"][row] for row in rows])
        robust = np.mean([table[f"white_box_state/{THREAT.replace(':', '_')}"][row] == "survived" for row in rows])
        assert model.metric("clean_accuracy").outcome.value == pytest.approx(clean)
        assert model.metric("adversarial_accuracy_white_box/linf_0.15").outcome.value == pytest.approx(robust)


def test_everything_is_in_mlflow_and_on_the_version(whole, digits_store):
    from mlflow import MlflowClient

    client = MlflowClient(digits_store.uri, digits_store.uri)
    result = result_of(whole[0])
    experiment = client.get_experiment_by_name("tests")
    runs = client.search_runs([experiment.experiment_id], f"tags.`audit.result_id` = '{result.id}'")
    for model in result.models:
        values = {record.key: record.outcome.value for record in model.metrics if record.outcome.kind == "measured"}
        logged = next(run.data.metrics for run in runs if values.items() <= run.data.metrics.items())
        assert logged
        version = client.get_model_version("digits", model.identity.version)
        assert version.tags["audit.result_id"] == result.id
        assert version.tags["audit.verdict"] == model.verdict.status


def test_push_of_a_logged_result_changes_nothing(whole, digits_store):
    from mlflow import MlflowClient

    client = MlflowClient(digits_store.uri, digits_store.uri)
    experiment = client.get_experiment_by_name("tests").experiment_id
    before = {run.info.run_id for run in client.search_runs([experiment])}
    done = audit("push", whole[0], "--tracking-uri", digits_store.uri, "--experiment", "tests")
    assert done.exit_code == 0, done.output
    assert {run.info.run_id for run in client.search_runs([experiment])} == before


def test_report_renders_again_from_the_folder_alone(whole, tmp_path):
    import shutil

    copy = shutil.copytree(whole[0], tmp_path / "copy")
    html = (copy / "report.html").read_bytes()
    (copy / "report.html").unlink()
    done = audit("report", copy / "result.json", "--no-pdf")
    assert done.exit_code == 0, done.output
    assert (copy / "report.html").read_bytes() == html


def run_small(model, out, *more, data="digits:test", samples="40", uri=None):
    place = ("--tracking-uri", uri) if uri else ("--no-mlflow",)
    return audit("run", model, "--data", data, "--threat", THREAT, "--samples", samples, "--out", out, "--no-pdf", *place, *more)


def test_an_onnx_file_is_audited_as_a_white_box_with_the_numbers_of_its_torch_model(digits_store, whole, tmp_path):
    done = run_small(digits_store.onnx_adversarial, tmp_path / "out", samples="120")
    assert done.exit_code == 0, done.output
    onnx, torch_model = result_of(tmp_path / "out").models[0], result_of(whole[0]).models[1]
    for name in ("clean_accuracy", "adversarial_accuracy_white_box/linf_0.15", "adversarial_accuracy_black_box/linf_0.15"):
        found, expected = onnx.metric(name).outcome, torch_model.metric(name).outcome
        assert found.value == pytest.approx(expected.value, abs=1 / 120 + 1e-9), name
    for name in ("fisher_spectral_norm/median", "linearised_margin_radius/linf"):
        assert onnx.metric(name).outcome.value == pytest.approx(torch_model.metric(name).outcome.value, rel=1e-3), name
    assert onnx.identity.runtime.startswith("ONNX Runtime") and onnx.backward_passes > 0
    assert onnx.identity.gradients.startswith("from the graph, converted to torch; it differs from ONNX Runtime by up to ")
    assert onnx.identity.gradients in (tmp_path / "out" / "report.html").read_text()


def test_a_black_box_is_audited_by_queries_and_says_what_it_lacks(digits_store, whole, tmp_path):
    done = run_small(digits_store.onnx_adversarial, tmp_path / "out", "--black-box", samples="120")
    assert done.exit_code == 0, done.output
    onnx, torch_model = result_of(tmp_path / "out").models[0], result_of(whole[0]).models[1]
    clean = "clean_accuracy"
    assert onnx.metric(clean).outcome.value == pytest.approx(torch_model.metric(clean).outcome.value, abs=1 / 120 + 1e-9)
    assert onnx.metric("adversarial_accuracy_white_box/linf_0.15").outcome.kind == "not_applicable"
    assert "--black-box" in onnx.metric("adversarial_accuracy_white_box/linf_0.15").outcome.because
    assert onnx.metric("adversarial_accuracy_black_box/linf_0.15").outcome.kind == "measured"
    exact = torch_model.metric("fisher_spectral_norm/median").outcome.value
    interval = onnx.metric("fisher_spectral_norm_estimate/median").outcome.interval
    assert interval.low <= exact <= interval.high
    score = next(score for score in onnx.scores if score.dimension == "adversarial")
    assert "query-only" in score.means


def test_numbers_do_not_depend_on_the_chunk(digits_store, tmp_path, monkeypatch):
    from dataclasses import replace

    from audit.pipeline import AuditRequest, run_audit
    from audit.settings import Settings
    from audit.vocabulary import Threat

    monkeypatch.setenv("MLFLOW_TRACKING_URI", digits_store.uri)
    settings = replace(Settings.of("quick"), threats=(Threat.parse(THREAT), Threat.parse("l2:0.5")), samples=70)
    found = []
    for rows in (32, 96):
        request = AuditRequest(
            models=(digits_store.standard,),
            data="digits:test",
            settings=replace(settings, chunk_rows=rows),
            out=tmp_path / str(rows),
            tracking_uri=digits_store.uri,
        )
        run = run_audit(request)
        found.append((run.result.models[0].metrics, pq.read_table(run.written.path / "examples.parquet")))
    assert found[0][0] == found[1][0]
    assert found[0][1].equals(found[1][1])


def test_the_reference_is_audited_and_marked(digits_store, tmp_path):
    done = run_small(digits_store.onnx_adversarial, tmp_path / "out", "--reference", digits_store.onnx_standard)
    assert done.exit_code == 0, done.output
    result = result_of(tmp_path / "out")
    assert [model.is_reference for model in result.models] == [False, True]
    assert len(result.subjects) == 1
    subject, reference = result.models
    assert subject.metric("mean_corruption_error").outcome.kind == "measured"
    assert reference.metric("mean_corruption_error").outcome.because == "this is the reference model itself"


def test_a_model_beside_itself_is_exactly_its_reference(digits_store, tmp_path):
    done = run_small(digits_store.onnx_standard, tmp_path / "out", "--reference", digits_store.onnx_standard)
    assert done.exit_code == 0, done.output
    subject, reference = result_of(tmp_path / "out").models
    assert subject.metric("mean_corruption_error").outcome.value == 1.0
    compared = [record.outcome.value for record in subject.metrics if record.family == "Beside the reference"]
    assert compared == [0.0] * 10
    own = [model.metric("unnormalised_mean_corruption_error").outcome for model in (subject, reference)]
    assert own[0] == own[1] and 0 < own[0].value < 1


@pytest.mark.parametrize(("bound", "code"), [("0.01", 0), ("0.999", 1)])
@pytest.mark.usefixtures("few_metrics")
def test_a_policy_decides_the_exit_code(digits_store, tmp_path, bound, code):
    policy = tmp_path / "policy.toml"
    policy.write_text(open_policy(f'metric = "clean_accuracy"\nat_least = {bound}'))
    done = run_small(digits_store.onnx_standard, tmp_path / "out", "--policy", policy)
    assert done.exit_code == code, done.output


@pytest.mark.usefixtures("few_metrics")
def test_json_events_are_json_lines(digits_store, tmp_path):
    done = run_small(digits_store.onnx_standard, tmp_path / "out", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == "done"
    assert events[-1]["models"][0]["overall"] is not None
    assert {event["event"] for event in events[:-1]} == {"progress"}


def test_no_images_leaves_them_out_everywhere(digits_store, tmp_path):
    done = run_small(digits_store.onnx_standard, tmp_path / "out", "--no-images")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "out" / "failures").exists()
    assert "data:image/png" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.usefixtures("few_metrics")
def test_a_store_that_is_gone_is_exit_code_3_and_push_finishes(digits_store, tmp_path):
    done = run_small(digits_store.onnx_standard, tmp_path / "out", uri="http://127.0.0.1:9")
    assert done.exit_code == 3, done.output
    assert "audit push" in done.output
    done = audit("push", tmp_path / "out", "--tracking-uri", digits_store.uri)
    assert done.exit_code == 0, done.output


def test_plan_shows_what_runs_and_what_does_not(digits_store):
    done = audit("plan", digits_store.onnx_standard, "--data", "digits:test", "--samples", "40")
    assert done.exit_code == 0, done.output
    assert "run   worst_case_black_box/linf_8-255" in done.output
    assert "run   worst_case_white_box/linf_8-255" in done.output
    done = audit("plan", digits_store.onnx_standard, "--data", "digits:test", "--samples", "40", "--black-box")
    assert "skip  worst_case_white_box/linf_8-255" in done.output


def test_plan_says_how_long_it_will_take_after_a_few_examples(digits_store):
    arguments = ("plan", digits_store.onnx_standard, "--data", "digits:test", "--samples", "100", "--time")
    (model,) = json.loads(audit(*arguments, "--json").stdout)
    assert all(stage["seconds"] >= 0 for stage in model["stages"])
    assert sum(stage["seconds"] for stage in model["stages"]) > 0
    done = audit(*arguments, "--threat", "linf:0")
    assert done.exit_code == 0, done.output
    assert re.search(r"values; about (\d+ h )?(\d+ min )?(\d+ s )?in all", done.output)


def test_metrics_lists_and_defines():
    assert "clean_accuracy" in audit("metrics").output
    assert "S the examples" in audit("metrics", "attack_success_rate").output
    assert len(json.loads(audit("metrics", "--json").output)) == 57
    wrong = audit("metrics", "clean_acuracy")
    assert wrong.exit_code == 2
    assert "did you mean clean_accuracy?" in wrong.output


def test_the_profiles_offered_are_the_profiles_there_are():
    from audit.cli.run import command
    from audit.profiles import PROFILES

    option = next(parameter for parameter in command.params if parameter.name == "profile")
    assert list(option.type.choices) == [profile.name for profile in PROFILES]


def test_resume_needs_a_folder_and_a_budget_a_duration(digits_store):
    for more, words in ((("--resume",), "--out"), (("--time-budget", "soon", "--out", "o"), "15m")):
        done = audit("run", digits_store.onnx_standard, "--data", "digits:test", *more)
        assert done.exit_code == 2
        assert words in done.output


@pytest.mark.usefixtures("few_metrics")
def test_plan_says_what_would_be_reused(digits_store, tmp_path):
    assert run_small(digits_store.onnx_standard, tmp_path / "out").exit_code == 0
    arguments = ("plan", digits_store.onnx_standard, "--data", "digits:test", "--samples", "40", "--threat", THREAT)
    done = audit(*arguments, "--reuse", tmp_path / "out", "--json")
    stages = json.loads(done.stdout)[0]["stages"]
    assert all(stage["chunks_reused"] == stage["chunks"] >= 1 for stage in stages)
    done = audit(*arguments, "--reuse", tmp_path / "out", "--profile", "standard")
    assert "worst_case_black_box/linf_0.15    " in done.output
    assert "re-uses 0 of 1 chunks" in done.output


@pytest.mark.usefixtures("few_metrics")
def test_data_options_reach_the_data(digits_store, tmp_path):
    from PIL import Image

    from audit import data as datasets

    digits = datasets.load("digits:test")
    lines = ["path,label,light"]
    for row in range(40):
        pixels = np.rint(digits.images([row])[0, 0] * 255).astype(np.uint8)
        Image.fromarray(pixels).resize((16, 16), Image.Resampling.NEAREST).save(tmp_path / f"{row}.png")
        lines.append(f"{row}.png,{digits.labels[row]},{'day' if row < 30 else 'night'}")
    Image.open(tmp_path / "0.png").save(tmp_path / "copy.png")
    lines.append(f"copy.png,{digits.labels[0]},night")
    (tmp_path / "manifest.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "names.txt").write_text("\n".join(f"digit {name}" for name in range(10)) + "\n")
    options = ("--resize", "8x8,box", "--class-names", tmp_path / "names.txt", "--train-data", tmp_path / "manifest.csv")
    done = run_small(digits_store.onnx_standard, tmp_path / "out", *options, data=tmp_path / "manifest.csv", samples="41")
    assert done.exit_code == 0, done.output
    found = result_of(tmp_path / "out").data
    assert found.image_shape == (1, 8, 8)
    assert found.classes[3].name == "digit 3"
    assert "box" in found.source
    assert any("copies" in caution for caution in found.cautions)
    assert any("training images" in caution for caution in found.cautions)
    (model,) = result_of(tmp_path / "out").models
    assert [(row.name, row.samples) for row in model.slices["light"]] == [("day", 30), ("night", 11)]
    assert sum(row.samples * row.clean for row in model.slices["light"]) == pytest.approx(
        41 * model.metric("clean_accuracy").outcome.value
    )
    assert "By columns of the data" in (tmp_path / "out" / "report.html").read_text()
