"""`audit history` on a real store: five versions with a planted regression, hostile names, and everything that can be missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import version_sample as sample
from click.testing import CliRunner

from audit.cli import cli

ROBUST = (300, 306, 310, 279, 285)


def audit(*arguments: object):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> sample.Store:
    """`digits`: five audited versions, the fourth 6.2 points worse, and a sixth that nobody audited; `evil` has a hostile name."""
    store = sample.store(tmp_path_factory.mktemp("store"))
    store.register("digits", 6)
    for place, count in enumerate(ROBUST, 1):
        clean, robust = sample.outcomes(480), sample.outcomes(count)
        store.log(sample.audited(str(place), clean, robust), tmp_path_factory.mktemp("out") / "out")
    store.client.set_model_version_tag("digits", "4", "audit.verdict", "fail\x1b[31m\n::error::x")
    return store


def test_the_table_marks_the_regression_and_the_exit_code_stays_0(store: sample.Store, tmp_path: Path) -> None:
    done = audit("history", "models:/digits", "--tracking-uri", store.uri, "--html", tmp_path / "history.html")
    assert done.exit_code == 0, done.output
    lines = [" ".join(line.split()) for line in done.output.splitlines()]
    assert lines[0] == "digits: 6 versions, 5 audited"
    assert lines[1] == "Adversarial accuracy, white-box, L∞ 8/255: worse in version 4: −6.2 points (−8.7 to −4.4)"
    row = "4 2026-11-04 500 55.8 % 51.4 to 60.1 fail ::error::x ▼ regression −6.2 points (−8.7 to −4.4)"
    assert lines.count(row) == 1 and sum("▼" in line for line in lines) == 1
    assert lines.count("6 not audited") == 3
    assert "\x1b" not in done.output and not any(line.startswith("::") for line in lines)
    assert (tmp_path / "history.html").stat().st_size > 100_000 and str(tmp_path / "history.html") in done.output


def test_json_is_one_document(store: sample.Store) -> None:
    done = audit("history", "digits", "--tracking-uri", store.uri, "--json", "--metric", sample.ROBUST)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [line["key"] for line in found["lines"]] == [sample.ROBUST]
    points = found["lines"][0]["segments"][0]
    assert [point["value"] for point in points] == [count / 500 for count in ROBUST]
    assert [bool(point["step"] and point["step"]["regression"]) for point in points] == [False, False, False, True, False]
    assert found["versions"][5]["why_none"] == "not audited"


def test_mlflows_own_table_can_draw_the_same_trend(store: sample.Store) -> None:
    """One key and one pair of tags over all versions, so that MLflow's charts and filters need nothing of ours."""
    experiment = store.client.get_experiment_by_name("audits").experiment_id
    runs = store.client.search_runs([experiment], "tags.`audit.model` = 'digits'")
    values = {run.data.tags["audit.model_version"]: run.data.metrics[sample.ROBUST] for run in runs}
    assert values == {str(place): count / 500 for place, count in enumerate(ROBUST, 1)}
    (only,) = store.client.search_runs([experiment], "tags.`audit.model` = 'digits' and tags.`audit.model_version` = '4'")
    assert only.data.metrics[sample.ROBUST] == 0.558


@pytest.mark.parametrize("name", ["it's <b>bold", "\x1b[31mred\n##[error]x", "模型\u202egnp"])
def test_hostile_names_are_inert(store: sample.Store, tmp_path: Path, name: str) -> None:
    store.register(name, 2)
    clean, robust = sample.outcomes(45, 50), sample.outcomes(30, 50)
    store.log(sample.audited("1", clean, robust, name=name), tmp_path / "out")
    done = audit("history", f"models:/{name}", "--tracking-uri", store.uri, "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "only version 1 is audited, and a trend needs two" in done.output.lower()
    assert "\x1b" not in done.output and "\u202e" not in done.output
    assert "##[" not in done.output
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>bold" not in text and "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("models:/absent",), "there is no registered model 'absent'"),
        (("models:/empty",), "model 'empty' has no version yet"),
        (("models:/digits/3",), "give the name alone, as in models:/NAME"),
        (("models:/digits@best",), "give the name alone"),
        (("models:/digits", "--metric", "clean_acuracy"), "did you mean clean_accuracy"),
        (("models:/digits", "--html", "absent/page.html"), "cannot be written to absent/page.html"),
    ],
)
def test_wrong_input_is_one_sentence(store: sample.Store, arguments: tuple[str, ...], words: str) -> None:
    if arguments[0] == "models:/empty":
        store.client.create_registered_model("empty")
    done = audit("history", *arguments, "--tracking-uri", store.uri)
    assert done.exit_code == (3 if "--html" in arguments else 2)
    assert words in done.output and "Traceback" not in done.output


def test_a_store_that_is_not_there_is_refused_and_not_made(tmp_path: Path) -> None:
    done = audit("history", "models:/digits")
    assert done.exit_code == 2 and "there is no MLflow store at sqlite:///mlflow.db" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_nobody_audited_says_so(store: sample.Store) -> None:
    store.register("fresh", 2)
    done = audit("history", "models:/fresh", "--tracking-uri", store.uri)
    assert done.exit_code == 0
    assert done.output.replace("\u00a0", " ").splitlines() == [
        "fresh: 2 versions, 0 audited",
        "No version is audited, and a trend needs two.",
        "version 1: not audited",
        "version 2: not audited",
    ]
