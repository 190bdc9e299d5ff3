"""What the report is told: counts that add up, arms that are not mixed, values that are null where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, estimate, predictions, spectrum, temperature, worst_case

from audit import statistics
from audit.engine.conclude import not_smooth
from audit.engine.ranking import rankings
from audit.engine.summary import cascades, classes, curves, failures, slices, strongest_arm
from audit.engine.table import columns
from audit.evidence import BROKEN, SURVIVED, UNKNOWN, AccuracyEpsilon, Evidence, EvidenceKey, EvidenceStore
from audit.vocabulary import Threat

WHITE, BLACK = Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX


def store(threat=LINF, **evidence) -> EvidenceStore:
    alone = {"predictions", "temperature", "fisher_spectrum", "fisher_estimate"}
    return EvidenceStore(
        {EvidenceKey(kind=Evidence(name), threat=None if name in alone else threat): value for name, value in evidence.items()}
    )


def arm(survivors: int, total: int = 20, **more) -> object:
    return worst_case(np.where(np.arange(total) < survivors, SURVIVED, BROKEN), **more)


def clean(total: int = 20):
    labels = np.arange(total) % 2
    return predictions(np.eye(2)[labels], labels)


def test_a_cascade_accounts_for_every_example():
    state = np.array([SURVIVED, SURVIVED, BROKEN, BROKEN, BROKEN, UNKNOWN, BROKEN])
    evidence = worst_case(state, [-2, -2, 0, 1, 1, -2, -1], clean_correct=np.arange(7) < 6, attacks=("FGSM", "PGD"))
    (cascade,) = cascades(store(worst_case_white_box=evidence), (LINF,))
    assert [(stage.attack, stage.images_in, stage.broken) for stage in cascade.stages] == [("FGSM", 6, 1), ("PGD", 5, 2)]
    broken = sum(stage.broken for stage in cascade.stages)
    assert cascade.natural_errors + broken + cascade.unknown + cascade.survivors == cascade.samples == 7


def test_at_epsilon_zero_no_attack_is_said_to_have_seen_an_image():
    nothing = Threat.parse("linf:0")
    (cascade,) = cascades(store(nothing, worst_case_white_box=arm(20, threat=nothing)), (nothing,))
    assert cascade.stages == () and cascade.survivors == 20


def test_curve_points_are_shares_of_all_examples():
    evidence = AccuracyEpsilon(
        threat=LINF,
        epsilons=(0.0, LINF.epsilon),
        arm="white-box",
        robust=np.array([[True, True], [True, False], [False, False]]),
        forward_passes=np.zeros(3, dtype=int),
        backward_passes=np.zeros(3, dtype=int),
    )
    (curve,) = curves(store(accuracy_epsilon=evidence), (LINF,))
    assert [point.accuracy for point in curve.points] == pytest.approx([2 / 3, 1 / 3]) and curve.samples == 3
    wilson = statistics.proportion(1, 3)
    assert (curve.points[1].low, curve.points[1].high) == (wilson.low, wilson.high)


def test_the_arm_that_broke_most_speaks_for_classes_and_failures():
    evidence = store(predictions=clean(), worst_case_white_box=arm(18), worst_case_black_box=arm(4, attacks=("Square",)))
    assert strongest_arm(evidence, LINF)[0] == "black-box"
    rows = classes(evidence, ("even", "odd"), LINF)
    assert [(row.samples, row.clean, row.robust) for row in rows] == [(10, 1.0, 0.2), (10, 1.0, 0.2)]
    assert {failure.record.attack for failure in failures(evidence, ("even", "odd"), (LINF,), 3)} == {"Square"}
    equal = store(worst_case_white_box=arm(4), worst_case_black_box=arm(4))
    assert strongest_arm(equal, LINF)[0] == "white-box" and strongest_arm(store(), LINF) is None


def ranked(*stores, skipped=None):
    return rankings(stores, (LINF,), skipped or [{}] * len(stores))


def test_rankings_never_mix_arms():
    both = store(predictions=clean(), worst_case_white_box=arm(2), worst_case_black_box=arm(18))
    queries = store(predictions=clean(), worst_case_black_box=arm(10))
    found = ranked(both, queries)
    assert [ranking.metric for ranking in found] == ["clean_accuracy", "adversarial_accuracy_black_box/linf_8-255"]
    assert {row.model: row.value for row in found[1].rows} == {0: 0.9, 1: 0.5}
    assert ranked(both, both)[1].metric == "adversarial_accuracy_white_box/linf_8-255"
    neither = store(predictions=clean())
    _, alone = ranked(both, neither, skipped=[{}, {"worst_case_white_box/linf_8-255": "ONNX Runtime has no backward pass"}])
    assert alone.rows == () and [(gap.model, gap.because) for gap in alone.left_out] == [(1, "ONNX Runtime has no backward pass")]
    found = ranked(both, neither, queries)[1]
    assert [row.model for row in found.rows] == [0, 2] and found.tests[0].second == 2
    assert [(gap.model, gap.because) for gap in found.left_out] == [(1, "no black-box attack was run")]
    assert ranked(both) == ()


def test_a_model_that_hides_its_gradients_does_not_rank_by_them():
    honest = store(predictions=clean(), worst_case_white_box=arm(8), worst_case_black_box=arm(12))
    masked = store(predictions=clean(), worst_case_white_box=arm(20), worst_case_black_box=arm(2))
    found = ranked(honest, masked)[1]
    assert found.metric == "adversarial_accuracy_black_box/linf_8-255"
    assert {row.model: row.value for row in found.rows} == {0: 0.6, 1: 0.1}
    # One example is no evidence, as in check 7; and an arm that not every model has ranks none.
    nearly = store(predictions=clean(), worst_case_white_box=arm(20), worst_case_black_box=arm(19))
    assert ranked(honest, nearly)[1].metric == "adversarial_accuracy_white_box/linf_8-255"
    alone = store(predictions=clean(), worst_case_white_box=arm(8))
    assert ranked(alone, masked)[1].metric == "adversarial_accuracy_white_box/linf_8-255"


def test_the_table_holds_nothing_at_a_temperature_that_was_not_fitted():
    whole = {"predictions": clean(), "fisher_spectrum": spectrum(np.ones(3)), "fisher_estimate": estimate(np.ones(3))}
    fitted = columns(store(**whole, temperature=temperature()), 0)
    assert fitted["lambda_max_T"].to_pylist()[:4] == pytest.approx([0.25, 0.25, 0.25, None])
    assert fitted["lambda_estimate_T"].to_pylist()[:4] == [1.0, 1.0, 1.0, None]
    limit = columns(store(**whole, temperature=replace(temperature(), at_limit=True)), 0)
    assert "lambda_max_T" not in limit and set(limit["lambda_estimate_T"].to_pylist()) == {None}
    assert limit["lambda_max_raw"].to_pylist()[:4] == pytest.approx([0.25, 0.25, 0.25, None])
    assert limit["lambda_estimate_raw"].to_pylist()[:4] == [1.0, 1.0, 1.0, None]


def test_outputs_that_are_not_smooth_are_a_caution_from_a_tenth_of_the_examples_on():
    def rough(count):
        states = np.where(np.arange(20) < count, "not_smooth", "measured")
        return not_smooth(store(predictions=clean(), fisher_estimate=estimate(np.ones(20), status=states)))

    assert not_smooth(store(predictions=clean())) == rough(0) == rough(2) == ()
    assert rough(3)[0].startswith("The outputs are not smooth around 3 of 20 examples")


def test_slices_are_classes_of_another_column():
    evidence = worst_case(np.where(np.arange(20) % 4 == 0, SURVIVED, BROKEN))
    found = store(predictions=clean(), worst_case_white_box=evidence)
    columns = {
        "light": np.array(["day", "night"])[np.arange(20) % 4 // 2],
        "device": np.array(["one"] * 20),
        "number": np.arange(20).astype(str),
        "free": np.array(["", "\x1b[31mred"] * 10),
    }
    tables, left_out = slices(found, columns, ("a", "b"), LINF)
    assert [(row.name, row.samples, row.clean, row.robust) for row in tables["light"]] == [
        ("day", 10, 1.0, 0.5),
        ("night", 10, 1.0, 0.0),
    ]
    assert tables["light"][0].robust_low == statistics.proportion(5, 10).low
    assert [row.name for row in tables["free"]] == ["(empty)", "red"]
    assert len(tables["number"]) == 20
    assert left_out == {"slices by device": "the column has one value only in the sample"}
    more = store(predictions=clean(21), worst_case_white_box=arm(5, 21))
    assert slices(more, {"number": np.arange(21).astype(str)}, ("a", "b"), LINF) == (
        {},
        {"slices by number": "the column has 21 values, more than 20, in the sample"},
    )
