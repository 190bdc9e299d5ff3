"""Paired differences: which examples they rest on, what they say, and when there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from audits_by_hand import BLACK, CLEAN, MEDIAN, RADIUS, SETTINGS, WHITE, audited, column, first
from mlflow_sample import record

from audit import statistics
from audit.pairing import Difference, NotComparable, comparability, difference, value_of
from audit.result import CorruptionTable, Failed, Measured, Undefined

GENERATOR = np.random.default_rng(0)


def why(a, b, key) -> str:
    found = difference(a, b, key)
    assert isinstance(found, NotComparable)
    return found.because


def test_a_share_by_hand():
    one, other = audited({CLEAN: first(90)}), audited({CLEAN: first(80)}, version="2")
    found = difference(one, other, CLEAN)
    assert (found.first, found.second, found.samples) == (0.9, 0.8, 100)
    assert found.value == pytest.approx(0.1)
    assert (found.counts.only_first, found.counts.only_second) == (10, 0)
    assert found.interval == statistics.paired_share_difference(found.counts)
    assert found.p_value == pytest.approx(2 * 0.5**10)


def test_the_other_way_round_is_the_same_with_its_sign_turned():
    lambdas = {MEDIAN: column(GENERATOR.lognormal(size=60))}
    for key, found, other in (
        (CLEAN, {CLEAN: first(90)}, {CLEAN: first(80)}),
        (MEDIAN, lambdas, {MEDIAN: column(GENERATOR.lognormal(size=60))}),
    ):
        there, back = (difference(*pair, key) for pair in ((audited(found), audited(other)), (audited(other), audited(found))))
        assert there.value == -back.value and there.p_value == back.p_value
        # The same resamples, so the ends meet up to the interpolation between two of 9999.
        assert (there.interval.low, there.interval.high) == pytest.approx((-back.interval.high, -back.interval.low), rel=1e-6)


@pytest.mark.parametrize("key", [CLEAN, WHITE, MEDIAN, RADIUS])
def test_a_model_against_itself_is_exactly_zero_and_never_significant(key):
    values = GENERATOR.random(80)
    one = audited({key: column(values < 0.7) if key in {CLEAN, WHITE} else column(values)})
    found = difference(one, one, key)
    assert found.value == 0.0 and found.p_value == 1.0
    assert found.interval.low <= 0 <= found.interval.high
    assert (found.interval.low == found.interval.high) == (found.counts is None)


def test_an_unknown_example_counts_as_not_robust():
    known = np.arange(100) >= 5
    one, other = audited({WHITE: column(np.ones(100), known)}), audited({WHITE: column(np.ones(100))}, version="2")
    found = difference(one, other, WHITE)
    assert (found.first, found.second, found.samples) == (0.95, 1.0, 100)
    assert found.counts.only_second == 5


def test_a_median_is_paired_on_the_examples_known_in_both():
    values, known = GENERATOR.lognormal(size=100), np.arange(100) < 60
    others, other_known = GENERATOR.lognormal(size=100) * 3, np.arange(100) >= 20
    found = difference(audited({MEDIAN: column(values, known)}), audited({MEDIAN: column(others, other_known)}), MEDIAN)
    assert found.samples == 40 and found.counts is None
    assert found.value == pytest.approx(np.median(values[20:60]) - np.median(others[20:60]))
    reference = scipy.stats.bootstrap(
        (values[20:60], others[20:60]),
        lambda a, b, axis: np.median(a, axis=axis) - np.median(b, axis=axis),
        paired=True,
        method="percentile",
        rng=np.random.default_rng(5),
    ).confidence_interval
    assert found.interval.low == pytest.approx(reference.low, abs=0.3)
    assert found.interval.high == pytest.approx(reference.high, abs=0.3)


def test_other_samples_of_the_same_data_are_paired_by_id():
    order = GENERATOR.permutation(100)
    right = np.arange(100) < 70
    one = audited({CLEAN: column(right)})
    other = audited({CLEAN: column(right[order])}, ids=[f"x{k}" for k in order], version="2")
    assert difference(one, other, CLEAN).counts.samples == 100
    assert difference(one, other, CLEAN).value == 0.0 and comparability(one, other) == ()
    shifted = audited({CLEAN: first(70), MEDIAN: column(GENERATOR.random(100))}, ids=[f"x{k + 60}" for k in range(100)])
    both = audited({CLEAN: column(right), MEDIAN: column(GENERATOR.random(100))})
    found = difference(both, shifted, CLEAN)
    assert (found.samples, found.first, found.second) == (40, 0.25, 1.0)
    assert "temperature" in why(both, shifted, MEDIAN)
    few = audited({CLEAN: first(70)}, ids=[f"x{k + 91}" for k in range(100)])
    assert "share 9 examples" in why(one, few, CLEAN)


def test_other_data_and_shapes_and_no_table_prevent_everything():
    one = audited({CLEAN: first(70), WHITE: first(30)})
    for what, other in (
        ("data", audited({CLEAN: first(70), WHITE: first(30)}, data_digest="5" * 64)),
        ("image shape", audited({CLEAN: first(70), WHITE: first(30)}, image_shape=(3, 8, 8))),
        ("per-example table", audited({CLEAN: first(70), WHITE: first(30)}, no_table="the result folder has no examples.parquet")),
    ):
        obstacles = comparability(one, other)
        assert obstacles[0].what == what and obstacles[0].prevents is None
        for key in (CLEAN, WHITE):
            assert why(one, other, key) == obstacles[0].because


def test_a_weaker_attack_is_not_a_better_model_and_clean_accuracy_still_compares():
    found = {CLEAN: first(90), WHITE: first(30), BLACK: first(50)}
    one = audited(found)
    weaker = audited({**found, WHITE: first(60)}, settings={**SETTINGS, "profile linf": "2"})
    assert "weaker attack" in why(one, weaker, WHITE) and "linf" in why(one, weaker, WHITE)
    assert isinstance(difference(one, weaker, CLEAN), Difference)
    assert isinstance(difference(one, weaker, BLACK), Difference), "query-only attacks do not read the PGD stages"
    # A setting of a later version that nobody here knows may matter to any attack.
    unknown = audited(found, settings={**SETTINGS, "profile restarts": "5"})
    assert "restarts" in why(one, unknown, WHITE) and "restarts" in why(one, unknown, BLACK)
    assert isinstance(difference(one, unknown, CLEAN), Difference)
    chosen = audited(found, settings={**SETTINGS, "profile name": "standard", "block rows": "16", "profile fisher_samples": "9"})
    assert isinstance(difference(one, chosen, WHITE), Difference)


def test_another_seed_prevents_attacks_only():
    found = {CLEAN: first(90), WHITE: first(30)}
    one, other = audited(found), audited(found, seed=1)
    assert "seeds 7 and 1" in why(one, other, WHITE)
    assert difference(one, other, CLEAN).value == 0.0


def test_white_box_accuracy_of_hidden_gradients_is_not_compared():
    one = audited({WHITE: first(30), BLACK: first(40)})
    hiding = audited({WHITE: first(60), BLACK: first(20)}, checks=(7,))
    assert "honesty check 7" in why(one, hiding, WHITE)
    assert difference(one, hiding, BLACK).value == pytest.approx(0.2)
    for honest in (audited({WHITE: first(60), BLACK: first(20)}), audited({WHITE: first(60), BLACK: first(70)}, checks=(7,))):
        assert isinstance(difference(one, honest, WHITE), Difference)


def test_what_only_has_to_be_known_prevents_nothing():
    found = {CLEAN: first(90), WHITE: first(30)}
    one, other = audited(found), audited(found, spec={"range": "0-255", "layout": "NCHW"})
    tool = replace(other.result, manifest=replace(other.result.manifest, tool_version="9.9"), threats=("linf:8/255", "l2:0.5"))
    other = replace(other, result=tool)
    obstacles = comparability(one, other)
    assert [obstacle.what for obstacle in obstacles] == ["threats", "tool", "input spec"]
    assert "range" in obstacles[2].because and "l2:0.5" in obstacles[0].because
    assert difference(one, other, WHITE).value == 0.0


@pytest.mark.parametrize(
    ("what", "one", "other", "blocked"),
    [
        ("surrogate", {"surrogate": "a (sha256 111111111111)"}, {}, {BLACK}),
        ("averaging", {"averaged": 5}, {"averaged": 10}, {WHITE, BLACK}),
    ],
)
def test_other_surrogates_and_means_are_other_attacks(what, one, other, blocked):
    plain = audited({CLEAN: first(90)})

    def changed(changes):
        model = replace(plain.model, identity=replace(plain.model.identity, **changes))
        return replace(plain, result=replace(plain.result, models=(model,)))

    obstacle = next(found for found in comparability(changed(one), changed(other)) if found.what == what)
    assert {key for key in (CLEAN, WHITE, BLACK) if obstacle.blocks(key)} == blocked
    assert what not in {found.what for found in comparability(changed(one), changed(one))}
    # A model that needs no mean is compared with one that does.
    assert "averaging" not in {found.what for found in comparability(plain, changed(other))}


def test_other_corrupted_images_prevent_what_reads_them():
    plain = audited({CLEAN: first(90)})

    def from_source(source):
        table = CorruptionTable(samples=90, clean_error=0.1, source=source, rows=())
        return replace(plain, result=replace(plain.result, models=(replace(plain.model, corruptions=table),)))

    made, read = from_source("made here"), from_source("a folder in the form of CIFAR-10-C, sha256 00")
    obstacle = next(found for found in comparability(made, read) if found.what == "corrupted images")
    assert obstacle.blocks("corruption_error/fog") and not obstacle.blocks(CLEAN)
    for same in ((read, read), (made, plain)):
        assert "corrupted images" not in {found.what for found in comparability(*same)}


def test_another_reference_prevents_what_is_relative_to_it():
    one, other = audited({CLEAN: first(90)}), audited({CLEAN: first(90)})
    reference = replace(one.model, is_reference=True)
    beside = replace(other, result=replace(other.result, models=(other.model, reference)))
    obstacle = next(found for found in comparability(one, beside) if found.what == "reference model")
    assert obstacle.blocks("mean_corruption_error/linf") and not obstacle.blocks(CLEAN)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Undefined(because="no attack succeeded"), "undefined for digits, version 2: no attack succeeded"),
        (Failed(error="out of memory"), "failed for digits, version 2 (out of memory)"),
        (None, "not asked for in the audit of digits, version 2"),
    ],
)
def test_a_value_that_is_missing_says_why(outcome, words):
    one = audited({CLEAN: first(90), WHITE: first(20)})
    extra = () if outcome is None else (record(WHITE, outcome),)
    other = audited({CLEAN: first(90)}, version="2", extra=extra)
    assert words in why(one, other, WHITE).replace("\u00a0", " ")


def test_a_value_without_a_column_or_with_the_wrong_one_says_so():
    key = "average_structural_similarity/linf_8-255"
    made = record(key, Measured(value=0.9, samples=50, why_no_interval="by hand"))
    one = audited({CLEAN: first(90)}, extra=(made,))
    assert "fooled" in why(one, one, key)
    fitted = record("fitted_temperature", Measured(value=1.1, samples=50, why_no_interval="by hand"))
    one = audited({CLEAN: first(90)}, extra=(fitted,))
    assert "as a whole" in why(one, one, "fitted_temperature")
    without = replace(one, columns={})
    assert "no column for it" in why(one, without, CLEAN)
    swapped = replace(one, columns={"correct": first(89)})
    assert "does not give its value" in why(one, swapped, CLEAN)
    assert value_of(one, CLEAN) == 0.9 and value_of(without, CLEAN) is None and value_of(one, "nothing") is None


def test_another_definition_or_reference_attack_is_another_measurement():
    one = audited({CLEAN: first(90)})
    changed = replace(one.model, metrics=tuple(replace(found, definition="another") for found in one.model.metrics))
    assert "definition changed" in why(one, replace(one, result=replace(one.result, models=(changed,))), CLEAN)
    key = "attack_success_rate/linf_8-255"

    def attacked(attack):
        rate = replace(
            record(key, Measured(value=0.4, samples=100, interval=statistics.proportion(40, 100))),
            notes=(f"reference attack {attack}",),
        )
        made = audited({CLEAN: first(90)}, extra=(rate,))
        return replace(made, columns={**made.columns, "reference_success/linf_8-255": first(40)})

    assert "PGD-40; reference attack Square-200" in why(attacked("PGD-40"), attacked("Square-200"), key)
    assert difference(attacked("PGD-40"), attacked("PGD-40"), key).value == 0.0


def test_the_noise_of_random_directions_widens_an_estimate():
    key = "fisher_spectral_norm_estimate_raw/mean"

    def estimated(values, error):
        made = replace(record(key, Measured(value=float(values.mean()), samples=50, why_no_interval="by hand")), variant="mean")
        one = audited({CLEAN: first(40, 50)}, extra=(made,))
        errors = {"lambda_estimate_raw": column(values), "lambda_estimate_relative_error": column(np.full(50, error))}
        return replace(one, columns={**one.columns, **errors})

    values = GENERATOR.lognormal(size=50)
    exact, noisy = (difference(estimated(values * 1.2, error), estimated(values, error), key) for error in (0.0, 0.1))
    noise = 0.1 * (noisy.first + noisy.second)
    assert noisy.interval.low == pytest.approx(exact.interval.low - noise)
    assert noisy.interval.high == pytest.approx(exact.interval.high + noise)
    assert exact.p_value < 0.01 and noisy.p_value == 1.0, "a difference below the noise is none"
    far = difference(estimated(values * 5, 0.1), estimated(values, 0.1), key)
    assert far.p_value < 0.05 and far.interval.low > 0


def test_a_one_sided_bound_is_the_end_of_the_90_percent_interval():
    one, other = audited({CLEAN: first(90)}), audited({CLEAN: first(80)})
    narrow, wide = (difference(one, other, CLEAN, level=level).interval for level in (0.9, 0.95))
    assert wide.low < narrow.low < narrow.high < wide.high and narrow.level == 0.9
