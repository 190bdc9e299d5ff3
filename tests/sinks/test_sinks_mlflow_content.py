from __future__ import annotations

import dataclasses
import json
import math
import string
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mlflow_sample as sample

from audit.result import Interval, Measured, OverallScore, ScoreRecord, Verdict
from audit.sinks import mlflow_content as content

LONG = "x" * 248 + "/.y"


@pytest.mark.parametrize(
    "text",
    ["a", sample.AAW, "a=b", "%@()[],", "..", "a/../b", "//a//", ".", "", "ü/漢字", "x" * 400, "/" * 300, "a b:c", "a\nb", LONG],
)
def test_keys_are_legal_by_mlflows_own_rule(text: str) -> None:
    from mlflow.utils.validation import _validate_metric_name

    key = content.legal_key(text)
    _validate_metric_name(key)
    assert len(key) <= 250
    assert content.legal_key(key) == key


def test_every_printable_character_is_legal_or_replaced() -> None:
    from mlflow.utils.validation import _validate_metric_name

    for character in string.printable:
        _validate_metric_name(content.legal_key(f"a{character}b"))


def test_keys_that_differ_only_in_case_stay_apart() -> None:
    keys = content.legal_keys(["ACAC", "acac", "a=b", "a_b", "y" * 300, "y" * 299])
    assert keys["ACAC"] == "ACAC" and keys["acac"] == "acac_2"
    assert len({key.casefold() for key in keys.values()}) == 6
    assert max(map(len, keys.values())) <= 250


def test_metrics_hold_every_measured_value_and_nothing_else() -> None:
    """No bounds of intervals: they are in the table, and would make two of every three of MLflow's charts."""
    metrics = content.model_content(sample.result(), 0).metrics
    assert metrics == {
        "clean_accuracy": 0.96,
        sample.AAW: 0.5,
        "score/clean": 96.0,
        "score/overall_at_most": 96.0,
    }


def test_runs_can_be_filtered_by_model_and_version() -> None:
    audit = sample.result(sample.model(name="it's \u6a21\u578b\x1b[31m"), sample.model(version=None), sample.model(version="12"))
    tags = [content.model_content(audit, index).tags for index in range(3)]
    assert [found["audit.model"] for found in tags] == ["it's \u6a21\u578b", "digits", "digits"]
    assert [found.get("audit.model_version") for found in tags] == ["1", None, "12"]


def test_every_threat_keeps_its_own_score() -> None:
    scores = tuple(
        ScoreRecord(
            dimension="adversarial",
            means="",
            outcome=Measured(value=value, samples=9, why_no_interval="one"),
            threat=threat,
        )
        for threat, value in (("linf:8/255", 40.0), ("l2:0.5", 70.0))
    )
    metrics = content.model_content(sample.result(dataclasses.replace(sample.model(), scores=scores)), 0).metrics
    assert (metrics["score/adversarial/linf_8-255"], metrics["score/adversarial/l2_0.5"]) == (40.0, 70.0)


def test_infinite_bounds_are_never_logged() -> None:
    wide = Measured(value=1.0, samples=3, interval=Interval(low=0.5, high=math.inf, method="delta"))
    model = sample.model(metrics=(sample.record("ratio", wide),))
    values = content.model_content(sample.result(model), 0)
    assert set(values.metrics) == {"ratio", "score/clean", "score/overall_at_most"}
    assert json.loads(json.dumps(values.table, allow_nan=False))["data"][0][:5] == ["ratio", 1.0, 0.5, None, 3]


def test_table_says_why_a_metric_is_missing() -> None:
    table = content.model_content(sample.result(), 0).table
    assert table is not None
    because = {row[0]: (row[7], row[8]) for row in table["data"]}  # type: ignore[index]
    assert because["input_fisher/median"] == ("failed", "out of memory")
    assert because["adversarial_accuracy_black_box/linf_8-255"] == ("not_applicable", "it was not asked for")
    assert because["average_confidence_of_adversarial_class/linf_8-255"] == ("undefined", "no attack succeeded")
    assert all(len(row) == len(table["columns"]) for row in table["data"])  # type: ignore[arg-type]


def test_an_undetermined_score_is_not_logged_as_a_score() -> None:
    whole = dataclasses.replace(sample.model(), overall=OverallScore(value=60.04, weakest="clean"))
    nothing = dataclasses.replace(sample.model(), overall=OverallScore(value=None, weakest=None, undetermined=("clean",)))
    assert content.model_content(sample.result(whole), 0).metrics["score/overall"] == 60.04
    assert "score/overall" not in content.model_content(sample.result(), 0).metrics
    assert not {"score/overall", "score/overall_at_most"} & set(content.model_content(sample.result(nothing), 0).metrics)
    assert [content.score_in_words(model.overall) for model in (whole, sample.model(), nothing)] == [
        "60.0",
        "at most 96.0, undetermined: local margin",
        "undetermined",
    ]


def test_long_values_are_cut_and_secrets_removed() -> None:
    params = content.model_content(sample.result(), 0).params
    assert len(params["settings.long"]) == 500 and params["settings.block_rows"] == "32"
    assert "hunter2" not in repr(content.parent_content(sample.result()))
    assert content.dataset_name(sample.result()) == "digits.npz"
    assert content.short_digest(sample.result().data.digest) == "0123456789abcdef"


def test_names_are_one_printable_line() -> None:
    values = content.model_content(sample.result(sample.model(name="\x1b[31mred\n::warning" + "n" * 400)), 0)
    assert values.name.isprintable() and len(values.name) == 250


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "undecided"), "undecided"),
        (("undecided", "fail"), "fail"),
        ((None, "pass"), "no policy"),
    ],
)
def test_the_parents_verdict_is_the_worst(statuses: tuple[str | None, ...], worst: str) -> None:
    verdicts = [
        status and Verdict(policy="p", policy_digest="d", status=status, sentence="s", rules=())  # type: ignore[arg-type]
        for status in statuses
    ]
    models = [dataclasses.replace(sample.model(), verdict=verdict or None) for verdict in verdicts]
    assert content.parent_content(sample.result(*models)).tags["audit.verdict"] == worst


def test_raised_checks_are_tags() -> None:
    tags = content.parent_content(sample.result()).tags
    assert {key: value for key, value in tags.items() if key.startswith("audit.check.")} == {"audit.check.9": "warn"}
