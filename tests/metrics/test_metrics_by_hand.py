"""Every metric on three or four examples worked by hand, and against a plain loop on random evidence."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
import scipy.special

from audit.errors import Undefined
from audit.evidence import AccuracyEpsilon, Predictions, ReferenceAttack, Temperature, WorstCase
from audit.metrics import CATALOG, accuracy, adversarial, fisher
from audit.metrics.spec import Metric
from audit.vocabulary import Family, Threat

LINF = Threat.parse("linf:8/255")


def reference_attack(logits, labels, clean_correct, **columns) -> ReferenceAttack:
    n = len(labels)
    zeros = np.zeros(n)
    given = {
        name: np.asarray(columns.get(name, zeros), dtype=float)
        for name in ("l0", "l2", "linf", "norm_l2", "norm_linf", "ssim", "psd", "psd_per_pixel")
    }
    return ReferenceAttack(
        threat=LINF,
        attack="PGD-40",
        labels=np.asarray(labels),
        clean_correct=np.asarray(clean_correct),
        adversarial_logits=np.asarray(logits, dtype=float),
        outside=np.zeros(n, dtype=bool),
        success_in_8_bits=np.zeros(n, dtype=bool),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
        **given,
    )


# Three examples of three classes: fooled into class 1 (0.2, 0.5, 0.3), survived, and wrong from the start (never in S).
PROBABILITIES = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
BY_HAND = reference_attack(
    np.log(PROBABILITIES),
    labels=[0, 0, 0],
    clean_correct=[True, True, False],
    l0=[0.5, 0.9, 0.9],
    l2=[0.3, 9, 9],
    norm_l2=[1.5, 1, 1],
    linf=[0.03, 9, 9],
    norm_linf=[0.6, 1, 1],
    ssim=[0.95, 0, 0],
    psd=[12.0, 9, 9],
    psd_per_pixel=[0.75, 9, 9],
)


def test_success_set_leaves_out_natural_errors():
    assert BY_HAND.success.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("metric", "arguments", "value"),
    [
        (adversarial.average_confidence_of_adversarial_class, {}, 0.5),
        (adversarial.average_confidence_of_true_class, {}, 0.2),
        (adversarial.noise_tolerance_estimation, {}, 0.2),
        (adversarial.average_lp_distortion, {"variant": "l0"}, 0.5),
        (adversarial.average_lp_distortion, {"variant": "l2"}, 0.2),
        (adversarial.average_lp_distortion, {"variant": "linf"}, 0.05),
        (adversarial.average_lp_distortion, {"variant": "l2_absolute"}, 0.3),
        (adversarial.average_lp_distortion, {"variant": "linf_absolute"}, 0.03),
        (adversarial.average_structural_similarity, {}, 0.95),
        (adversarial.perturbation_sensitivity_distance, {"variant": "sum"}, 12.0),
        (adversarial.perturbation_sensitivity_distance, {"variant": "per_pixel"}, 0.75),
        (accuracy.attack_success_rate, {}, 0.5),
    ],
    ids=lambda value: value.id if isinstance(value, Metric) else str(value),
)
def test_reference_attack_metrics_by_hand(metric, arguments, value):
    estimate = metric(reference_attack=BY_HAND, **arguments)
    assert estimate.value == pytest.approx(value, abs=1e-12)


OVER_SUCCESSES = [
    metric for metric in CATALOG if metric.needs[:1] == ("reference_attack",) and metric.family is not Family.CALIBRATION
]


@pytest.mark.parametrize("metric", OVER_SUCCESSES, ids=lambda metric: metric.id)
def test_no_success_is_undefined_and_never_zero(metric):
    survived = reference_attack(np.log(PROBABILITIES[[1, 1]]), labels=[0, 0], clean_correct=[True, True])
    arguments = {"variant": metric.variants(None, None)[0]} if metric.variants else {}
    if metric.id == "attack_success_rate":
        assert metric(reference_attack=survived).value == 0.0
        return
    with pytest.raises(Undefined, match="no attack succeeded"):
        metric(reference_attack=survived, **arguments)


def test_attack_success_rate_without_a_right_answer_is_undefined():
    with pytest.raises(Undefined, match="nothing to attack"):
        accuracy.attack_success_rate(reference_attack=reference_attack(np.log(PROBABILITIES), [1, 1, 1], [False] * 3))


def test_relative_distortion_of_a_black_image_is_undefined():
    black = reference_attack(np.log(PROBABILITIES[:1]), [0], [True], l2=[1.0], norm_l2=[0.0])
    with pytest.raises(Undefined, match="all zero"):
        adversarial.average_lp_distortion(reference_attack=black, variant="l2")
    assert adversarial.average_lp_distortion(reference_attack=black, variant="l2_absolute").value == 1.0


def test_confidence_metrics_against_a_plain_loop_and_their_identities():
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(200, 7)) * 3, generator.integers(0, 7, 200)
    clean = generator.random(200) < 0.8
    attack = reference_attack(logits, labels, clean)
    fooled, true, gaps = [], [], []
    for row in range(200):
        p = scipy.special.softmax(logits[row])
        if clean[row] and p.argmax() != labels[row]:
            fooled.append(p.max())
            true.append(p[labels[row]])
            gaps.append(p.max() - sorted(p)[-2])
    values = {
        metric.symbol: metric(reference_attack=attack).value
        for metric in (
            adversarial.average_confidence_of_adversarial_class,
            adversarial.average_confidence_of_true_class,
            adversarial.noise_tolerance_estimation,
        )
    }
    assert values == pytest.approx({"ACAC": np.mean(fooled), "ACTC": np.mean(true), "NTE": np.mean(gaps)})
    assert values["NTE"] <= values["ACAC"]
    assert values["ACAC"] + values["ACTC"] <= 1


def predictions(logits, labels) -> Predictions:
    return Predictions(
        positions=np.arange(len(labels)),
        ids=np.array([f"x{i}" for i in range(len(labels))]),
        labels=np.asarray(labels),
        logits=np.asarray(logits, dtype=float),
    )


def test_clean_accuracy_by_hand():
    estimate = accuracy.clean_accuracy(predictions=predictions([[2, 1], [0, 1], [3, 0]], [0, 1, 1]))
    assert estimate.value == pytest.approx(2 / 3)
    assert estimate.samples == 3


def worst_case(state, clean_correct) -> WorstCase:
    n = len(state)
    nothing = np.zeros(n)
    return WorstCase(
        threat=LINF,
        attacks=("FGSM",),
        labels=np.zeros(n, dtype=int),
        clean_correct=np.asarray(clean_correct),
        state=np.asarray(state),
        broken_by=np.zeros(n, dtype=int),
        adversarial_class=np.zeros(n, dtype=int),
        adversarial_confidence=nothing,
        distance=nothing,
        nearest=nothing,
        outside=np.zeros(n, dtype=bool),
        forward_passes=np.zeros(n, dtype=int),
        backward_passes=np.zeros(n, dtype=int),
        shown=(),
    )


@pytest.mark.parametrize("metric", [accuracy.adversarial_accuracy_white_box, accuracy.adversarial_accuracy_black_box])
def test_unknown_counts_as_not_robust_and_the_optimistic_value_stands_beside(metric):
    evidence = worst_case([1, 0, 2, 1], [True] * 4)
    estimate = metric(**{metric.needs[0].value: evidence})
    assert estimate.value == 0.5
    assert any("0.750" in note for note in estimate.notes)
    assert any("upper bound" in note for note in estimate.notes)


def test_curve_points_are_read_at_their_epsilon():
    curve = AccuracyEpsilon(
        threat=LINF,
        epsilons=(0.0, 4 / 255, 8 / 255),
        arm="white-box",
        robust=np.array([[True, True, False], [True, False, False]]),
        forward_passes=np.zeros(2, dtype=int),
        backward_passes=np.zeros(2, dtype=int),
    )
    values = [
        accuracy.accuracy_epsilon_curve(accuracy_epsilon=curve, threat=LINF, variant=name).value
        for name in ("at_0-255", "at_4-255", "at_8-255")
    ]
    assert values == [1.0, 0.5, 0.0]
    with pytest.raises(Undefined):
        accuracy.accuracy_epsilon_curve(accuracy_epsilon=curve, threat=LINF, variant="at_5-255")


def test_saturated_share_by_hand():
    # p of the top class: 1/(1+e^-8) = 0.99966, 1/(1+e^-6) = 0.9975.
    assert fisher.saturated_share(predictions=predictions([[8, 0], [6, 0]], [0, 0])).value == 0.5


def test_temperature_at_its_bound_is_undefined():
    fit = Temperature(value=100.0, loss_before=1.0, loss_after=0.9, at_limit=True)
    with pytest.raises(Undefined, match="no minimum"):
        fisher.fitted_temperature(temperature=fit, predictions=predictions([[1, 0]], [0]))


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.id)
def test_docstring_defines_the_metric_and_its_example_is_true(metric):
    assert metric.definition.count("\n") >= 1, "a definition says more than its name"
    assert metric.source
    parsed = doctest.DocTestParser().get_doctest(metric.function.__doc__, {}, metric.id, None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(parsed)
    assert runner.failures == 0


def test_catalogue_ids_and_symbols_are_unique():
    assert len({metric.id for metric in CATALOG}) == len({metric.symbol for metric in CATALOG}) == len(CATALOG)


def test_worsening_the_evidence_moves_values_against_their_better_side():
    surer = BY_HAND.adversarial_logits.copy()
    surer[0] = np.log([0.1, 0.8, 0.1])
    worse = reference_attack(surer, BY_HAND.labels, BY_HAND.clean_correct)
    for metric in (
        adversarial.average_confidence_of_adversarial_class,
        adversarial.average_confidence_of_true_class,
        adversarial.noise_tolerance_estimation,
    ):
        before, after = metric(reference_attack=BY_HAND).value, metric(reference_attack=worse).value
        assert (after > before) == (metric.better == "lower")
        assert not math.isclose(after, before)
