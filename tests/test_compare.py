"""Rank intervals on columns whose paired tests are known."""

from __future__ import annotations

import numpy as np
import pytest

from audit.compare import rank


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
