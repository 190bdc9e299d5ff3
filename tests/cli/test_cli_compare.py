"""`audit compare` on real audits of real models, and on results that try to inject into the terminal."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from click.testing import CliRunner

from audit import pairing, records
from audit.cli import cli
from audit.result import Measured, from_json, write

THREAT = "linf:0.15"
WHITE = "adversarial_accuracy_white_box/linf_0.15"
# Means over the images that fooled one model, a maximum, a fit, what a set of images covers and what is debiased have no value per
# example; the table has none of the minimal perturbations and single severities.
NOT_PAIRED = {
    *("average_lp_distortion", "average_structural_similarity", "perturbation_sensitivity_distance"),
    *("average_confidence_of_adversarial_class", "average_confidence_of_true_class", "noise_tolerance_estimation"),
    *("fisher_spectral_norm/max", "fitted_temperature", "fisher_estimate_agreement", "neuron_sensitivity", "neuron_uncertainty"),
    *("k_multisection_neuron_coverage", "neuron_boundary_coverage", "strong_neuron_activation_coverage", "top_k_neuron_coverage"),
    *("calibration_error", "calibration_error_corrupted", "calibration_error_adversarial"),
    *("clean_subtracted_corruption_error", "corruption_error_by_severity", "median_minimal_perturbation"),
}


def audit(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(digits_store, tmp_path_factory):
    """An audit of both digits models, logged."""
    out = tmp_path_factory.mktemp("compare") / "out"
    done = audit(
        *("run", digits_store.standard, digits_store.adversarial, "--data", "digits:test", "--threat", THREAT),
        *("--samples", "60", "--out", out, "--tracking-uri", digits_store.uri, "--experiment", "compare", "--no-pdf"),
    )
    assert done.exit_code == 0, done.output
    return out


def test_every_paired_value_is_the_records_value(folder):
    for one in records.audits(str(folder)):
        for record in one.model.metrics:
            value = pairing.value_of(one, record.key)
            if isinstance(record.outcome, Measured):
                assert (value is None) == (not NOT_PAIRED.isdisjoint({record.id, record.key})), record.key
                assert value is None or value == pytest.approx(record.outcome.value, rel=1e-12), record.key


def test_two_models_side_by_side_with_worst_news_first(folder):
    done = audit("compare", folder)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    (white,) = [line for line in lines if WHITE in line]
    result = from_json((folder / "result.json").read_bytes())
    first, second = (model.metric(WHITE).outcome.value for model in result.models)
    assert white.split()[0] == "better"
    assert f"{100 * first:.1f}\u00a0%" in white.replace(" %", "\u00a0%") and f"+{100 * (second - first):.1f} (+" in white
    places = [next(place for place, line in enumerate(lines) if line.startswith(f"  {word}")) for word in ("not told", "better")]
    assert places == sorted(places)
    assert "not compared, because it is a mean over the images that fooled the model" in done.output


def test_a_folder_against_itself_is_exactly_zero(folder):
    done = audit("compare", folder, folder / "result.json", "--json")
    document = json.loads(done.stdout)
    assert [subject["letter"] for subject in document["subjects"]] == ["A", "B", "C", "D"]
    again = [pair for row in document["rows"] for pair in row["pairs"] if pair["model"] == 2 and pair["difference"]]
    assert again and all(pair["difference"]["value"] == 0 and pair["verdict"] in {"not told apart", "no side"} for pair in again)
    assert any(barrier["obstacle"]["what"] == "model" for barrier in document["barriers"])
    assert {ranking["metric"] for ranking in document["rankings"]} >= {"clean_accuracy", WHITE}


def test_versions_and_runs_come_from_the_registry(folder, digits_store, tmp_path):
    page = tmp_path / "page.html"
    done = audit("compare", "models:/digits/1", "models:/digits/2", "--tracking-uri", digits_store.uri, "--html", page)
    assert done.exit_code == 0, done.output
    assert "B is worse than A in" in done.output and str(page) in done.output
    assert "digits, version" in page.read_text(encoding="utf-8").replace("\u00a0", " ")
    by_folder = audit("compare", folder)
    assert [line for line in done.output.splitlines() if WHITE in line] == [
        line for line in by_folder.output.splitlines() if WHITE in line
    ]


@pytest.mark.parametrize(
    "name", ["\x1b[31mred\x1b[0m", "::error::boom", "<script>alert(1)</script>", "a\r\n::set-output name=x::y"]
)
def test_hostile_names_are_inert_in_the_terminal(folder, tmp_path, name):
    shutil.copytree(folder, tmp_path / "out")
    result = from_json((folder / "result.json").read_bytes())
    models = tuple(replace(model, identity=replace(model.identity, name=name, version=None)) for model in result.models)
    write(replace(result, models=models), tmp_path / "out")
    done = audit("compare", tmp_path / "out", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output and "\r" not in done.output
    assert not any(line.lstrip().startswith("::") for line in done.output.splitlines())
    assert "<script>alert" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_one_model_alone_and_a_missing_folder_are_input_errors(folder, tmp_path):
    single = tmp_path / "single"
    shutil.copytree(folder, single)
    result = from_json((folder / "result.json").read_bytes())
    write(replace(result, models=result.models[:1], rankings=()), single)
    done = audit("compare", single)
    assert done.exit_code == 2 and "needs two" in done.output
    done = audit("compare", folder, tmp_path / "nowhere")
    assert done.exit_code == 2 and "nowhere" in done.output and "Traceback" not in done.output
    done = audit("compare", folder, "models:/nothing/1", "--tracking-uri", "sqlite:///missing.db")
    assert done.exit_code == 2


def test_without_a_table_the_values_are_shown_and_the_reason_said(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "out")
    (tmp_path / "out" / "examples.parquet").unlink()
    done = audit("compare", tmp_path / "out", "--json")
    document = json.loads(done.stdout)
    assert all(pair["difference"] is None for row in document["rows"] for pair in row["pairs"])
    assert document["rows"][0]["values"][0]["kind"] == "measured"
    told = audit("compare", tmp_path / "out").output
    assert "Nothing of B could be compared with A." in told and "examples.parquet" in told
