"""Every check that this version runs can be raised and can stay silent, at the thresholds METRICS names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, predictions, reference_attack, spectrum, temperature, worst_case

from audit.evidence import BROKEN, PER_THREAT, SURVIVED, UNKNOWN, Evidence, EvidenceKey, EvidenceStore
from audit.metrics import honesty
from audit.metrics.check_texts import CHECK_TEXTS
from audit.metrics.findings import RunFacts
from audit.metrics.honesty import CHECKS, check_record
from audit.metrics.spec import Estimate
from audit.vocabulary import Threat

FACTS = RunFacts(
    threats=(LINF,), repeat_difference=0.0, outputs="logits (detected)", outputs_clear=True, device_asked="auto", device="cpu"
)
WHITE, BLACK = Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX
BLACK_BOX = ("random noise, 10 draws", "Square-200")


def store(threat=LINF, **evidence) -> EvidenceStore:
    kinds = {Evidence(name): value for name, value in evidence.items()}
    return EvidenceStore({EvidenceKey(kind=k, threat=threat if k in PER_THREAT else None): value for k, value in kinds.items()})


def status(number: int, evidence: EvidenceStore, facts: RunFacts = FACTS) -> str:
    text, run = CHECKS[number - 1]
    assert text.number == number
    return check_record(text, run(evidence, facts)).status


def clean(right: int, total: int = 100, top: float = 2.0):
    """`total` examples of two classes in equal numbers, `right` of them answered rightly; `top` is the winning logit's lead."""
    labels = np.arange(total) % 2
    answers = np.where(np.arange(total) < right, labels, 1 - labels)
    return predictions(top * np.eye(2)[answers], labels)


def test_seventeen_checks_in_order_and_in_words():
    assert [text.number for text in CHECK_TEXTS] == list(range(1, 18))
    for text in CHECK_TEXTS:
        assert text.title and text.raised_if and text.means and text.do


def test_1_compares_the_lower_bound_with_the_largest_class():
    # Wilson at 60 of 100: 0.502; at 59 of 100: 0.492. The largest class holds 0.5.
    assert status(1, store(predictions=clean(60))) == "pass"
    assert status(1, store(predictions=clean(59))) == "warn"


def arms(survivors: int, beaten: int, stage: int) -> EvidenceStore:
    """`survivors` examples stand after the white-box arm, of which the black-box arm breaks `beaten` in its stage `stage`."""
    n = survivors + 5
    white = np.where(np.arange(n) < survivors, SURVIVED, BROKEN)
    black = np.where(np.arange(n) < beaten, BROKEN, SURVIVED)
    return store(
        predictions=clean(n, n),
        worst_case_white_box=worst_case(white),
        worst_case_black_box=worst_case(black, np.where(black == BROKEN, stage, -2), attacks=BLACK_BOX),
    )


@pytest.mark.parametrize(
    ("survivors", "beaten", "raised"), [(100, 1, False), (100, 2, True), (400, 2, False), (399, 2, True), (9, 0, False)]
)
def test_7_needs_two_examples_and_more_than_half_a_per_cent(survivors, beaten, raised):
    for stage in (0, 1):
        assert status(7, arms(survivors, beaten, stage)) == ("warn" if raised else "pass")


def test_7_lists_the_examples_and_needs_both_arms():
    assert "x0, x1" in CHECKS[6][1](arms(100, 2, 1), FACTS).found
    alone = store(predictions=clean(90), worst_case_black_box=worst_case([SURVIVED] * 100, attacks=BLACK_BOX))
    assert status(7, alone) == status(8, alone) == "not_run"


def test_8_counts_the_breaks_of_random_noise_only():
    assert status(8, arms(100, 2, 0)) == "warn"
    assert status(8, arms(100, 1, 0)) == "pass"
    assert status(8, arms(100, 50, 1)) == "pass"


@pytest.mark.parametrize(("zero", "raised"), [(0, False), (5, False), (6, True), (100, True)])
def test_9_allows_five_per_cent_of_zero_gradients(zero, raised):
    evidence = spectrum(np.ones(100), zero=np.arange(100) < zero)
    assert status(9, store(fisher_spectrum=evidence)) == ("warn" if raised else "pass")


def test_9_names_where_gradients_get_lost_and_is_raised_where_they_all_do():
    masked = replace(FACTS, gradients_lost_in=("Round (2)", "Sign"))
    evidence = store(fisher_spectrum=spectrum(np.ones(100), zero=np.arange(100) < 3))
    words = "no useful gradient passes Round (2), Sign"
    assert status(9, evidence, masked) == "pass"
    assert CHECKS[8][1](evidence, masked).found == f"3.0% of 100 examples have zero gradients; {words}"
    assert status(9, store(), masked) == "not_run"
    assert status(9, store(), replace(masked, has_gradients=False)) == "warn"
    assert CHECKS[8][1](store(), replace(masked, has_gradients=False)).found == words


def test_9_is_not_run_without_gradients():
    assert status(9, store()) == status(9, store(fisher_spectrum=spectrum(np.ones(0)))) == "not_run"


@pytest.mark.parametrize(("difference", "raised"), [(0.0, False), (1e-4, False), (1.1e-4, True), (float("nan"), True)])
def test_10_allows_a_ten_thousandth(difference, raised):
    assert status(10, store(), replace(FACTS, repeat_difference=difference)) == ("warn" if raised else "pass")


@pytest.mark.parametrize("clear", [True, False])
def test_11_asks_whether_the_outputs_are_known(clear):
    assert status(11, store(), replace(FACTS, outputs_clear=clear)) == ("pass" if clear else "warn")


def test_12_counts_proposals_outside_among_the_images_attacked():
    right = [True] * 3 + [False]
    inside = worst_case([SURVIVED] * 4, clean_correct=right)
    outside = replace(inside, outside=np.array([False, True, False, False]))
    assert status(12, store(worst_case_white_box=inside)) == "pass"
    assert status(12, store(worst_case_white_box=inside, worst_case_black_box=outside)) == "warn"
    assert "1 of 6 attacked images" in CHECKS[11][1](store(worst_case_white_box=inside, worst_case_black_box=outside), FACTS).found
    reference = replace(reference_attack(np.eye(2), [0, 1]), outside=np.array([True, False]))
    assert status(12, store(reference_attack=reference)) == "warn"


def test_12_is_not_run_where_nothing_was_attacked():
    nothing = Threat.parse("linf:0")
    evidence = store(threat=nothing, worst_case_white_box=worst_case([SURVIVED] * 4, threat=nothing))
    assert status(12, evidence, replace(FACTS, threats=(nothing,))) == status(12, store()) == "not_run"


def test_12_counts_what_is_left_in_8_bits():
    fooled = replace(reference_attack(np.eye(2)[[1, 1, 0]], [0, 0, 0]), success_in_8_bits=np.array([True, False, False]))
    assert (
        "1 of 2 successes of the reference attack are successes inside the ball in 8 bits"
        in CHECKS[11][1](store(reference_attack=fooled), FACTS).found
    )
    assert status(12, store(reference_attack=fooled)) == "pass"


@pytest.mark.parametrize(
    ("ratio", "raised"), [(1.0, False), (1.25, False), (1.26, True), (float("inf"), True), (float("nan"), True)]
)
def test_13_allows_a_quarter_more_than_the_optimum(ratio, raised):
    facts = replace(FACTS, self_test={"FGSM, L2": 1.0, "Square-100, L∞": ratio})
    assert status(13, store(), facts) == ("warn" if raised else "pass")
    assert not raised or "Square-100, L∞ needs" in CHECKS[12][1](store(), facts).found
    assert status(13, store()) == "not_run"


def test_14_holds_for_measured_confidences_and_fires_on_a_fault(monkeypatch):
    generator = np.random.default_rng(0)
    fooled = reference_attack(generator.normal(size=(200, 2)) * 9, generator.integers(0, 2, 200))
    evidence = store(reference_attack=fooled)
    assert status(14, evidence) == "pass"
    for wrong in (1.5, float("nan")):
        faulty = Estimate(value=wrong, samples=1, interval=None, why_no_interval="")
        for name in ("noise_tolerance_estimation", "average_confidence_of_true_class"):
            with monkeypatch.context() as patch:
                patch.setattr(honesty, name, lambda value=faulty, **_: value)
                assert status(14, evidence) == "warn"


def test_14_is_not_run_when_no_attack_succeeded():
    assert status(14, store(reference_attack=reference_attack(np.eye(2), [0, 1]))) == status(14, store()) == "not_run"


@pytest.mark.parametrize(("saturated", "raised"), [(10, False), (11, True)])
def test_15_allows_ten_per_cent_of_saturated_answers(saturated, raised):
    # A lead of 8 is p = 0.99966; a lead of 2 is p = 0.88.
    logits = np.where(np.arange(100) < saturated, 8.0, 2.0)[:, None] * np.eye(2)[np.zeros(100, dtype=int)]
    evidence = store(predictions=predictions(logits, np.zeros(100, dtype=int)), temperature=temperature(1.0))
    assert status(15, evidence) == ("warn" if raised else "pass")


@pytest.mark.parametrize(("value", "raised"), [(0.49, True), (0.5, False), (2.0, False), (2.01, True)])
def test_15_wants_a_temperature_from_a_half_to_two(value, raised):
    assert status(15, store(predictions=clean(90), temperature=temperature(value))) == ("warn" if raised else "pass")


def test_15_is_raised_where_no_temperature_fits():
    assert status(15, store(predictions=clean(90), temperature=temperature(1.0, at_limit=True))) == "warn"
    assert status(15, store(predictions=clean(90))) == "pass"


@pytest.mark.parametrize(("asked", "device", "raised"), [("cuda", "cpu", True), ("cuda", "cuda:0", False), ("auto", "cpu", False)])
def test_16_wants_the_device_that_was_asked_for(asked, device, raised):
    assert status(16, store(), replace(FACTS, device_asked=asked, device=device)) == ("warn" if raised else "pass")


@pytest.mark.parametrize(("unknown", "raised"), [(0, False), (1, False), (2, True)])
def test_17_allows_one_per_cent_unknown_in_the_worst_arm(unknown, raised):
    states = np.where(np.arange(100) < unknown, UNKNOWN, SURVIVED)
    evidence = store(worst_case_white_box=worst_case([SURVIVED] * 100), worst_case_black_box=worst_case(states, attacks=BLACK_BOX))
    assert status(17, evidence) == ("warn" if raised else "pass")
    assert status(17, store()) == "not_run"
