"""Rank intervals and comparisons on columns whose paired tests are known."""

from __future__ import annotations

import json

import numpy as np
import pytest
from audits_by_hand import BLACK, CLEAN, MEDIAN, RADIUS, RAW, SETTINGS, WHITE, audited, first, record
from audits_by_hand import column as column_of

from audit.compare import compare, to_json
from audit.compare.ranking import rank


def column(right: int, total: int = 100) -> np.ndarray:
    return np.arange(total) < right


def test_clearly_different_models_get_ranks_of_their_own():
    ranking = rank("Clean accuracy", "clean_accuracy", [column(50), column(90), column(70)])
    assert [(row.model, row.rank_low, row.rank_high) for row in ranking.rows] == [(1, 1, 1), (2, 2, 2), (0, 3, 3)]
    assert ranking.rows[0].value == pytest.approx(0.9)


def test_models_that_the_test_cannot_tell_apart_share_ranks():
    # 3 discordant pairs cannot reach significance; 60 can.
    ranking = rank("Clean accuracy", "clean_accuracy", [column(93), column(90), column(30)])
    assert [(row.rank_low, row.rank_high) for row in ranking.rows] == [(1, 2), (1, 2), (3, 3)]


def test_equal_accuracy_on_different_examples_is_a_tie():
    first, second = column(50), ~column(50)
    ranking = rank("Clean accuracy", "clean_accuracy", [first, second])
    assert {(row.rank_low, row.rank_high) for row in ranking.rows} == {(1, 2)}
    assert ranking.tests[0].only_first == ranking.tests[0].only_second == 50


def test_holm_adjusts_over_all_pairs():
    # 7 against 1 of 8 discordant pairs: p = 0.07 alone; 6 against 0: p = 0.031, no longer significant among three pairs.
    ranking = rank("Clean accuracy", "clean_accuracy", [column(96), column(90), column(90)])
    test = next(test for test in ranking.tests if (test.first, test.second) == (0, 1))
    assert test.p_value == pytest.approx(0.03125)
    assert test.adjusted_p_value == pytest.approx(0.09375)
    assert {(row.rank_low, row.rank_high) for row in ranking.rows} == {(1, 3)}


def test_other_examples_cannot_be_ranked():
    with pytest.raises(ValueError, match="same examples"):
        rank("Clean accuracy", "clean_accuracy", [column(5, 10), column(5, 11)])


def drawn(seed: int, models: int = 5, total: int = 120) -> list[np.ndarray]:
    """Models of different accuracy whose errors go together."""
    generator = np.random.default_rng(seed)
    hard = generator.random(total) < 0.5
    chances = generator.random(models)
    return [np.where(hard, generator.random(total) < chance, generator.random(total) < 0.9) for chance in chances]


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_interval_contains_the_naive_rank(seed):
    columns = drawn(seed)
    shares = [column.mean() for column in columns]
    for row in rank("Clean accuracy", "clean_accuracy", columns).rows:
        best, worst = 1 + sum(share > row.value for share in shares), sum(share >= row.value for share in shares)
        assert row.rank_low <= best <= worst <= row.rank_high


@pytest.mark.parametrize("seed", range(5))
def test_a_model_is_never_significantly_better_than_itself(seed):
    for same in drawn(seed):
        found = rank("Clean accuracy", "clean_accuracy", [same, same, same])
        assert {(row.rank_low, row.rank_high) for row in found.rows} == {(1, 3)}
        assert {test.adjusted_p_value for test in found.tests} == {1.0}


def test_a_comparison_of_a_model_with_itself_is_exactly_zero():
    values = np.random.default_rng(0).lognormal(size=100)
    one = audited({CLEAN: first(90), WHITE: first(30), MEDIAN: column_of(values), RADIUS: column_of(values)})
    comparison = compare([one, one])
    assert [row.key for row in comparison.rows] == [CLEAN, WHITE, MEDIAN, RADIUS]
    for row in comparison.rows:
        (pair,) = row.pairs
        assert pair.difference.value == 0.0 and pair.adjusted_p_value == 1.0 and pair.verdict == "not told apart"
    assert [barrier.obstacle.what for barrier in comparison.barriers] == ["model"] and comparison.gaps == {}


def test_raw_sensitivities_that_order_the_models_the_other_way_have_to_be_known():
    values = np.random.default_rng(1).lognormal(size=100)

    def of(fitted, raw, **more):
        return audited({MEDIAN: column_of(values * fitted)}, extra=(record(RAW, column_of(values * raw)),), **more)

    def known(one, other):
        barriers = compare([one, other]).barriers
        return [barrier.obstacle.because for barrier in barriers if barrier.obstacle.what == "sensitivity"]

    # Intervals by hand run from half the median to twice it: four times as much is not beyond chance, nine times is.
    plain, sharp = of(1, 1), of(9, 1e-3, version="2")
    (because,) = known(plain, sharp)
    assert because.startswith(f"raw outputs (T = 1) make {sharp.label} look the less sensitive")
    assert known(sharp, plain) == [because]
    assert not known(plain, of(9, 9, version="2")) and not known(plain, of(1.5, 0.9, version="2"))
    assert not known(plain, audited({MEDIAN: column_of(values * 9)}, version="2"))


def test_verdicts_are_on_the_owners_side_and_worst_news_comes_first():
    values = np.random.default_rng(1).lognormal(size=100)
    baseline = audited({CLEAN: first(90), WHITE: first(30), BLACK: first(60), MEDIAN: column_of(values)})
    other = audited({CLEAN: first(91), WHITE: first(50), BLACK: first(40), MEDIAN: column_of(values * 9)}, version="2")
    comparison = compare([baseline, other])
    assert [(row.key, pair.verdict) for row, pair in comparison.worst_first] == [
        (BLACK, "worse"),
        (MEDIAN, "worse"),  # a larger sensitivity is no gain
        (CLEAN, "not told apart"),
        (WHITE, "better"),
    ]
    assert comparison.claims == 4
    white = next(row for row in comparison.rows if row.key == WHITE).pairs[0]
    assert white.difference.value == pytest.approx(0.2) and white.difference.counts.only_first == 20
    assert white.adjusted_p_value == pytest.approx(4 * 2 * 0.5**20), "one of two twenties, of four claims"


def test_holm_spans_every_row_and_every_model():
    """Seven discordant pairs are p = 0.016: enough for one claim, not for one of four."""
    baseline = audited({CLEAN: first(90), WHITE: first(30)})
    worse = audited({CLEAN: first(83), WHITE: first(30)}, version="2")
    alone = compare([audited({CLEAN: first(90)}), audited({CLEAN: first(83)}, version="2")])
    assert alone.rows[0].pairs[0].verdict == "worse"
    both = compare([baseline, worse, worse])
    assert both.claims == 4 and {pair.verdict for row in both.rows for pair in row.pairs} == {"not told apart"}


def test_what_cannot_be_compared_is_shown_with_its_reason():
    baseline = audited({CLEAN: first(90), WHITE: first(30)})
    weaker = audited({CLEAN: first(80), WHITE: first(60)}, version="2", settings={**SETTINGS, "profile linf": "1"})
    comparison = compare([baseline, weaker])
    white = next(row for row in comparison.rows if row.key == WHITE)
    assert [outcome.value for outcome in white.values] == [0.3, 0.6] and white.pairs[0].verdict == "not compared"
    ((place, because),) = comparison.gaps
    assert comparison.gaps[place, because] == (WHITE,) and "weaker attack" in because
    assert comparison.worst_first[0][0].key == CLEAN


def test_three_models_are_ranked_where_every_pair_may_be_compared():
    audits = [audited({CLEAN: first(right), WHITE: first(right - 40)}, version=str(right)) for right in (90, 60, 88)]
    clean, white = compare(audits).rankings
    assert clean.metric == CLEAN and [(row.model, row.rank_low, row.rank_high) for row in clean.rows] == [
        (0, 1, 2),
        (2, 1, 2),
        (1, 3, 3),
    ]
    assert white.dimension == "Accuracy under white-box attack, L∞ 8/255"
    assert compare(audits[:2]).rankings == ()
    odd = audited({CLEAN: first(60), WHITE: first(20)}, settings={**SETTINGS, "profile linf": "1"}, version="9")
    assert [ranking.metric for ranking in compare([*audits, odd]).rankings] == [CLEAN]


def test_the_curves_points_at_zero_and_at_the_budget_are_not_claimed_twice():
    threat = "linf:8/255"
    points = {f"accuracy_epsilon_curve/at_{k}-255/linf_8-255": first(90 - 5 * k) for k in (0, 4, 8)}
    one, other = (audited({CLEAN: first(90), WHITE: first(50), **points}, version=version) for version in ("1", "2"))
    assert {found.threat for found in one.model.metrics} == {None, threat}
    kept = [row.key for row in compare([one, other]).rows]
    assert kept == [CLEAN, WHITE, "accuracy_epsilon_curve/at_4-255/linf_8-255"]


def test_the_json_is_whole_and_the_same_every_time():
    one, other = audited({CLEAN: first(90), MEDIAN: column_of(np.arange(1, 101))}), audited({CLEAN: first(80)}, version="2")
    text = to_json(compare([one, other]))
    assert text == to_json(compare([one, other]))
    document = json.loads(text)
    assert document["rows"][0]["pairs"][0]["difference"]["counts"] == {
        "both_right": 80,
        "only_first": 0,
        "only_second": 10,
        "both_wrong": 10,
    }
    assert document["rows"][1]["pairs"][0]["because"].startswith("it was not asked for")


def test_one_audit_is_no_comparison():
    with pytest.raises(ValueError, match="at least two"):
        compare([audited({CLEAN: first(90)})])


def test_only_files_show_that_it_is_the_same_model():
    one, other = audited({CLEAN: first(90)}), audited({CLEAN: first(80)})
    assert "same model, file by file" in to_json(compare([one, other])).decode()
    text = to_json(compare([one, audited({CLEAN: first(80)}, opaque=True)])).decode()
    assert "no files show whether it was the same model" in text and "file by file" not in text
