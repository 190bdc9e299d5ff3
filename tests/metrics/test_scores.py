"""Scores: which number each dimension reads, and what happens to it when that number is missing."""

from __future__ import annotations

import numpy as np
import pytest
from corruption_by_hand import corruptions
from evidence_by_hand import LINF, predictions, worst_case

from audit import statistics
from audit.evidence import BROKEN, SURVIVED, UNKNOWN, Evidence, EvidenceKey, EvidenceStore
from audit.metrics.scores import overall, scores
from audit.metrics.spec import key_of
from audit.result import CheckRecord, Failed, Measured, MetricRecord, NotApplicable, Undefined
from audit.vocabulary import Better

WHITE, BLACK = Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX


def measured(value: float, samples: int = 100) -> Measured:
    return Measured(value=value, samples=samples, interval=statistics.proportion(round(value * samples), samples))


def record(key: str, outcome) -> MetricRecord:
    return MetricRecord(
        key=key,
        id=key.partition("/")[0],
        name="",
        symbol="",
        family="",
        unit="share",
        better=Better.HIGHER,
        definition="",
        source="",
        outcome=outcome,
    )


def scored(arms, white=None, black=None, margin=None, checks=(), skipped=None, corrupted=None, evidence=None, flipped=None):
    """The scores by dimension of a model with these arms and metric outcomes."""
    outcomes = {
        "clean_accuracy": measured(0.8),
        "mean_flip_probability": flipped or NotApplicable(because="not measured"),
        "unnormalised_mean_corruption_error": corrupted or NotApplicable(because="not measured"),
        key_of("adversarial_accuracy_white_box", None, LINF): white or measured(0.5),
        key_of("adversarial_accuracy_black_box", None, LINF): black or measured(0.6),
        key_of("linearised_margin_share", None, LINF): margin or measured(0.4, 50),
    }
    store = EvidenceStore({EvidenceKey(kind=kind, threat=LINF): value for kind, value in arms.items()})
    for kind, value in (evidence or {}).items():
        store = store.with_item(EvidenceKey(kind=kind), value)
    raised = tuple(
        CheckRecord(number=number, title="", status=status, found="", raised_if="", means="", do="") for number, status in checks
    )
    found = scores(store, skipped or {}, {key: record(key, outcome) for key, outcome in outcomes.items()}, raised, (LINF,))
    return {score.dimension: score for score in found}


def arm(survivors: int, unknown: int = 0) -> object:
    """100 examples, 20 of them wrong on the clean image."""
    place = np.arange(100)
    state = np.where(place < survivors, SURVIVED, np.where(place < survivors + unknown, UNKNOWN, BROKEN))
    return worst_case(state, clean_correct=place < 80)


def test_adversarial_score_is_the_share_of_right_answers_that_survive():
    score = scored({WHITE: arm(40, unknown=8), BLACK: arm(60)})["adversarial"]
    assert score.outcome.value == pytest.approx(50.0) and score.outcome.samples == 80
    wilson = statistics.proportion(40, 80)
    assert (score.outcome.interval.low, score.outcome.interval.high) == (100 * wilson.low, 100 * wilson.high)
    assert "white-box" in score.means


def test_adversarial_score_is_named_query_only_where_there_are_no_gradients():
    score = scored({BLACK: arm(60)}, white=NotApplicable(because="no backward pass"))["adversarial"]
    assert score.outcome.value == pytest.approx(75.0) and "query-only" in score.means


def test_adversarial_score_reads_the_lower_arm():
    score = scored({WHITE: arm(76), BLACK: arm(8)})["adversarial"]
    assert score.outcome.value == pytest.approx(10.0) and "query-only" in score.means
    assert "white-box" in scored({WHITE: arm(60), BLACK: arm(60)})["adversarial"].means


def test_a_white_box_arm_that_failed_is_not_replaced_by_a_weaker_one():
    found = scored({BLACK: arm(76)}, white=Failed(error="out of memory"))
    assert found["adversarial"].outcome == Failed(error="out of memory")
    assert "adversarial" in overall(tuple(found.values())).undetermined


def test_a_query_only_arm_that_failed_is_failed():
    found = scored({}, white=NotApplicable(because="no backward pass"), black=Failed(error="out of memory"))
    assert found["adversarial"].outcome == Failed(error="out of memory")
    because = {EvidenceKey(kind=BLACK, threat=LINF): "Square is defined for linf"}
    missing = NotApplicable(because="x")
    assert scored({}, missing, missing, skipped=because)["adversarial"].outcome == NotApplicable(
        because="Square is defined for linf"
    )


def test_no_right_answer_leaves_nothing_to_attack():
    wrong = worst_case([BROKEN] * 10, clean_correct=[False] * 10)
    assert isinstance(scored({WHITE: wrong})["adversarial"].outcome, Undefined)


@pytest.mark.parametrize(
    ("checks", "void"), [([(9, "warn")], True), ([(15, "warn")], True), ([(7, "warn"), (9, "pass"), (15, "not_run")], False)]
)
def test_checks_9_and_15_void_the_local_margin(checks, void):
    found = scored({WHITE: arm(40)}, checks=checks)
    assert isinstance(found["local margin"].outcome, Undefined if void else Measured)
    assert ("local margin" in overall(tuple(found.values())).undetermined) == void
    if not void:
        assert found["local margin"].outcome.value == pytest.approx(40.0) and found["local margin"].outcome.samples == 50


def corrupted_score(kept, clean):
    """The score of 20 images with these right answers under one kind, and on the clean image."""
    evidence = {
        Evidence.CORRUPTIONS: corruptions(np.broadcast_to(np.asarray(kept)[:, None, None], (20, 1, 5))),
        Evidence.PREDICTIONS: predictions(np.where(np.asarray(clean)[:, None], [[1.0, 0]], [[0, 1.0]]), np.zeros(20, dtype=int)),
    }
    return scored({WHITE: arm(40)}, corrupted=measured(0.5, 20), evidence=evidence)["corruption"].outcome


def test_the_corruption_score_is_what_is_kept_of_the_clean_accuracy():
    place = np.arange(20)
    found = corrupted_score(place < 8, place < 16)
    assert found.value == pytest.approx(50.0) and found.samples == 20 and found.interval.low < 50 < found.interval.high
    assert corrupted_score(place < 18, place < 16).value == 100.0
    assert corrupted_score(place < 8, place < 0) == Undefined(because="no clean image is classified correctly")
    assert isinstance(scored({WHITE: arm(40)})["corruption"].outcome, NotApplicable)


def test_the_stability_score_is_what_does_not_flip():
    found = scored({WHITE: arm(40)}, flipped=measured(0.2))["stability"].outcome
    wilson = statistics.proportion(20, 100)
    assert found.value == pytest.approx(80.0) and found.samples == 100
    assert (found.interval.low, found.interval.high) == pytest.approx((100 - 100 * wilson.high, 100 - 100 * wilson.low))


def test_overall_is_the_weakest_and_only_an_upper_bound_while_dimensions_are_missing():
    found = tuple(scored({WHITE: arm(40)}).values())
    total = overall(found)
    assert (total.value, total.weakest) == (pytest.approx(40.0), "local margin")
    assert total.undetermined == ("corruption", "stability")
    assert overall(tuple(score for score in found if isinstance(score.outcome, Measured))).undetermined == ()
    assert overall(()).value is None


@pytest.mark.parametrize("seed", range(30))
def test_overall_is_never_above_a_measured_dimension_and_at_most_while_one_is_missing(seed):
    generator = np.random.default_rng(seed)
    white, black = (arm(int(generator.integers(81))) if generator.random() < 0.7 else None for _ in range(2))
    arms = {kind: value for kind, value in ((WHITE, white), (BLACK, black)) if value is not None}
    margin = measured(generator.random(), 50) if generator.random() < 0.7 else Undefined(because="no gradients")
    checks = [(number, "warn") for number in (9, 15) if generator.random() < 0.2]
    dimensions = tuple(scored(arms, margin=margin, checks=checks).values())
    found = overall(dimensions)
    values = [score.outcome.value for score in dimensions if isinstance(score.outcome, Measured)]
    assert found.value == min(values) and all(0 <= value <= 100 for value in values)
    assert set(found.undetermined) == {score.dimension for score in dimensions if not isinstance(score.outcome, Measured)}
    whole = overall(tuple(score for score in dimensions if isinstance(score.outcome, Measured)))
    assert whole.undetermined == () and whole.value == found.value
