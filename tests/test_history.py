"""Trends over versions: regressions against hand-worked counts, Holm over the steps, breaks, gaps and reasons."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from version_sample import CLEAN, ROBUST, outcomes, record

from audit.audited import VersionRecord
from audit.errors import InputError
from audit.history import Line, history, to_json
from audit.result import OverallScore


def line_of(records: list[VersionRecord], key: str = ROBUST, keys: tuple[str, ...] = ()) -> Line:
    return next(line for line in history("digits", records, keys).lines if line.key == key)


def five(*robust: int) -> list[VersionRecord]:
    return [record(str(place), outcomes(480), outcomes(count)) for place, count in enumerate(robust, 1)]


def test_a_planted_regression_is_marked_with_its_interval_and_nothing_else_is() -> None:
    line = line_of(five(300, 306, 310, 279, 285))
    steps = [point.step for point in line.points]
    assert steps[0] is None and all(step is not None for step in steps[1:])
    assert [(point.version, point.value) for point in line.points] == [
        (str(k), c / 500) for k, c in enumerate((300, 306, 310, 279, 285), 1)
    ]
    assert [point.version for point in line.regressions] == ["4"]
    fourth = steps[3]
    assert fourth is not None and (fourth.earlier, fourth.samples) == ("3", 500)
    assert fourth.difference == pytest.approx(-31 / 500)
    assert fourth.low < -31 / 500 < fourth.high < 0
    # All 31 discordant images are lost: the exact two-sided McNemar test is a sign test.
    assert fourth.p_value == pytest.approx(2 * 0.5**31)


def test_holm_counts_every_step_of_the_metric() -> None:
    """6, 6 and 7 images lost: p = 1/32, 1/32, 1/64; alone each is significant, over three steps none is."""
    records = five(300, 294, 288, 281)
    steps = [point.step for point in line_of(records).points[1:]]
    assert [step.p_value for step in steps if step] == pytest.approx([2 / 2**6, 2 / 2**6, 2 / 2**7])
    assert [step.adjusted_p_value for step in steps if step] == pytest.approx([4 / 64, 4 / 64, 3 / 64])
    assert [step.regression for step in steps if step] == [False, False, True]
    assert line_of(records[:2]).regressions != ()


def test_noise_marks_at_most_one_history_in_twenty() -> None:
    """Versions that are equally good: with Holm over the steps, false marks stay below the level."""
    rng = np.random.default_rng(0)
    marked = 0
    for _ in range(120):
        records = [record(str(k), np.ones(60, dtype=bool), rng.random(60) < 0.7) for k in range(1, 5)]
        marked += bool(line_of(records).regressions)
    assert marked <= scipy.stats.binom.ppf(0.999, 120, 0.05)


def test_worse_follows_the_metrics_own_direction() -> None:
    def lower_is_better(record_: VersionRecord) -> VersionRecord:
        assert record_.audited is not None
        audit = record_.audited
        model = audit.model
        metrics = tuple(replace(metric, better=type(metric.better)("lower")) for metric in model.metrics)
        result = replace(audit.result, models=(replace(model, metrics=metrics),))
        return replace(record_, audited=replace(audit, result=result))

    line = line_of([lower_is_better(item) for item in five(279, 310, 250)])
    assert [point.version for point in line.regressions] == ["2"]
    assert [point.version for point in line.points if point.step and point.step.improvement] == ["3"]


def test_the_line_breaks_where_data_change_and_tests_look_past_it() -> None:
    other = "f" * 64
    records = [
        record("1", outcomes(480), outcomes(310)),
        record("2", outcomes(480), outcomes(100), data_digest=other),
        record("3", outcomes(480), outcomes(280)),
        record("4", outcomes(480), outcomes(279)),
    ]
    line = line_of(records)
    assert [[point.version for point in segment] for segment in line.segments] == [["1"], ["2"], ["3", "4"]]
    assert [(item.earlier, item.later) for item in line.breaks] == [("1", "2"), ("2", "3")]
    assert all("different data" in item.because for item in line.breaks)
    one, two, three, four = line.points
    assert one.step is None and one.why_no_step is None
    assert two.step is None and "different data" in (two.why_no_step or "")
    assert three.step is not None and (three.step.earlier, three.step.regression) == ("1", True)
    assert three.step.difference == pytest.approx(-30 / 500)
    assert four.step is not None and four.step.earlier == "3" and not four.step.regression


def test_a_change_of_the_definition_breaks_the_line() -> None:
    records = five(300, 300)
    audit = records[1].audited
    assert audit is not None
    metrics = tuple(replace(metric, definition="another share") for metric in audit.model.metrics)
    changed = replace(audit, result=replace(audit.result, models=(replace(audit.model, metrics=metrics),)))
    line = line_of([records[0], replace(records[1], audited=changed)])
    assert len(line.segments) == 2 and "definition changed" in line.breaks[0].because


def test_versions_without_a_value_are_gaps_with_their_reason() -> None:
    records = [
        record("1", outcomes(480), outcomes(300)),
        VersionRecord(name="digits", version="2", why_none="not audited"),
        record("3", outcomes(480), None),
        record("4", outcomes(480), outcomes(299)),
    ]
    line = line_of(records)
    assert [(gap.version, gap.because) for gap in line.gaps] == [("2", "not audited"), ("3", "undefined: no gradients")]
    assert [[point.version for point in segment] for segment in line.segments] == [["1", "4"]]
    assert line.points[1].step is not None and line.points[1].step.earlier == "1"
    assert [gap.version for gap in line_of(records, CLEAN).gaps] == ["2"]


def test_the_overall_score_is_followed_but_not_tested() -> None:
    def scored(item: VersionRecord, *, undetermined: tuple[str, ...], value: float | None = 70.0) -> VersionRecord:
        assert item.audited is not None
        overall = OverallScore(value=value, weakest="clean", undetermined=undetermined)
        result = replace(item.audited.result, models=(replace(item.audited.model, overall=overall),))
        return replace(item, audited=replace(item.audited, result=result))

    one, two, three, four = five(300, 300, 300, 300)
    records = [
        scored(one, undetermined=("stability",)),
        scored(two, undetermined=("stability",), value=20.0),
        scored(three, undetermined=()),
        scored(four, undetermined=("corruption", "stability")),
    ]
    found = history("digits", records)
    lines = {line.key: line for line in found.lines}
    at_most = lines["score/overall_at_most"]
    assert [point.version for point in lines["score/overall"].points] == ["3"]
    assert [[point.version for point in segment] for segment in at_most.segments] == [["1", "2"], ["4"]]
    assert "corruption" in at_most.breaks[0].because
    assert at_most.regressions == () and all(point.step is None for point in at_most.points)
    assert [gap.version for gap in at_most.gaps] == ["3"]


def test_without_two_audits_there_is_no_trend() -> None:
    lonely = [record("1", outcomes(480), outcomes(300)), VersionRecord(name="digits", version="2", why_none="not audited")]
    assert history("digits", lonely).no_trend == "only version 1 is audited, and a trend needs two"
    none = history("digits", [replace(lonely[1], version="1")])
    assert none.no_trend == "no version is audited, and a trend needs two" and none.lines == ()
    assert history("digits", five(300, 300)).no_trend is None


def test_the_registrys_verdict_wins_over_the_audits_own() -> None:
    gated = record("1", outcomes(480), outcomes(300), verdict="fail")
    assert history("digits", [gated]).versions[0].verdict == line_of([gated]).points[0].verdict == "fail"
    assert history("digits", [record("1", outcomes(480), outcomes(300))]).versions[0].verdict is None


def test_metrics_can_be_chosen_and_a_wrong_key_names_the_nearest() -> None:
    records = five(300, 300)
    assert [line.key for line in history("digits", records).lines] == [CLEAN, ROBUST, "score/overall_at_most"]
    assert [line.key for line in history("digits", records, (ROBUST, ROBUST)).lines] == [ROBUST]
    with pytest.raises(InputError, match="no audit of digits has a metric 'clean_acuracy'; did you mean clean_accuracy"):
        history("digits", records, ("clean_acuracy",))


def test_json_says_everything_and_holds_no_nan() -> None:
    document = json.loads(to_json(history("digits", five(310, 279))), parse_constant=lambda text: pytest.fail(text))
    step = document["lines"][1]["segments"][0][1]["step"]
    assert step["regression"] is True and step["earlier"] == "1" and math.isclose(step["difference"], -0.062)
    assert [version["version"] for version in document["versions"]] == ["1", "2"]
