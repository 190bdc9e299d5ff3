"""The gate passes on measured values only, on an audit of what the policy pins, and on the files that were audited."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from audits_by_hand import CLEAN, MEDIAN, WHITE, audited, column, first
from audits_by_hand import sample as made
from policy_text import open_policy

from audit.gate import CurrentModel, judge
from audit.gate.example import example
from audit.policy import MINIMAL_TEXT, parse_policy
from audit.result import Failed, Interval, Measured, NotApplicable, ScoreRecord, Undefined
from audit.vocabulary import BLACK_BOX_ASKED

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)  # a day after the audits by hand
BLACK = "adversarial_accuracy_black_box/linf_8-255"
DIGEST = "0123456789abcdef" * 4
ALLOWED = 'metric = "clean_accuracy"\nbound = 0.0\nread = "value"'


def policy(*rules: str, **pins: str):
    if "data" in pins:
        pins["data_digest"] = None
    return parse_policy(open_policy(*(rules or (ALLOWED,)), **pins), "test")


def model(outcomes, scores=(), checks=(), **options):
    """An audit of a hundred examples with these outcomes by key."""
    found = audited({CLEAN: first(90)}, **options)
    records = []
    for key, outcome in outcomes.items():
        threat = "linf:8/255" if key.endswith("/linf_8-255") else None
        records.append(replace(made.record(key, outcome), threat=threat))
    whole = replace(found.model, metrics=tuple(records), scores=tuple(scores), checks=tuple(checks))
    return replace(found, result=replace(found.result, models=(whole,)))


def verdict(loaded, one, *, references=None, now=NOW, current=None):
    current = current or CurrentModel.of(one.model.identity)
    return judge(one, loaded, references=references or {}, now=now, current=current)


def line(loaded, one, **options):
    """The only line beside that of the model's files."""
    files, rule = verdict(loaded, one, **options).rules
    assert files.status == "pass"
    return rule


def pin(key, one, **pins):
    return next(rule for rule in verdict(policy(**pins), one).rules if rule.key == f"requires/{key}")


def measured(value: float, low: float, high: float) -> Measured:
    return Measured(value=value, samples=100, interval=Interval(low=low, high=high, method="Wilson"))


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (measured(0.9, 0.85, 0.95), "pass"),
        (measured(0.9, 0.75, 0.95), "undecided"),
        (measured(0.7, 0.65, 0.75), "fail"),
        (NotApplicable(because="no gradients"), "undecided"),
        (Undefined(because="no attack succeeded"), "undecided"),
        (Failed(error="out of memory"), "undecided"),
        (Measured(value=0.99, samples=3, why_no_interval="too few"), "undecided"),
    ],
)
@pytest.mark.parametrize("bound", ["at_least", "bound"])
def test_only_the_worse_end_of_a_measured_interval_passes(outcome, status, bound):
    loaded = policy(f'metric = "clean_accuracy"\n{bound} = 0.8')
    found = verdict(loaded, model({CLEAN: outcome}))
    assert found.status == found.rules[-1].status == status
    assert (found.rules[-1].kind, found.rules[-1].key, found.rules[-1].limit) == ("bound", CLEAN, 0.8)


@pytest.mark.parametrize("bound", ["at_most", "bound"])
def test_where_lower_is_better_the_upper_end_is_held_against_the_bound(bound):
    key = "attack_success_rate/linf_8-255"
    loaded = policy(f'metric = "{key}"\n{bound} = 0.5')
    for outcome, status in (
        (measured(0.4, 0.3, 0.45), "pass"),
        (measured(0.4, 0.3, 0.55), "undecided"),
        (measured(0.6, 0.5, 0.7), "fail"),
    ):
        assert line(loaded, model({key: outcome})).status == status


def test_a_rule_may_read_the_value_and_may_allow_a_missing_one():
    loaded = policy('metric = "clean_accuracy"\nat_least = 0.8\nread = "value"')
    assert line(loaded, model({CLEAN: measured(0.81, 0.5, 0.9)})).status == "pass"
    loaded = policy('metric = "clean_accuracy"\nat_least = 0.8\nallow_missing = true')
    assert line(loaded, model({CLEAN: NotApplicable(because="x")})).status == "pass"
    assert line(loaded, model({CLEAN: measured(0.1, 0.0, 0.2)})).status == "fail"


def test_chance_is_the_largest_class_share():
    loaded = policy('metric = "clean_accuracy"\nat_least = "chance"')
    one = model(
        {CLEAN: measured(0.7, 0.61, 0.8)}, classes=(made.ClassCount(name="a", count=60), made.ClassCount(name="b", count=40))
    )
    assert line(loaded, one).limit == 0.6
    assert line(loaded, one).status == "pass"


def test_a_threat_is_the_same_however_it_is_spelled():
    loaded = policy('metric = "adversarial_accuracy_white_box/linf_8-255"\nbound = 0.5')
    one = model({WHITE: measured(0.7, 0.6, 0.8)})
    record = replace(one.model.metrics[0], key="adversarial_accuracy_white_box/linf_16-510", threat="linf:16/510")
    other = replace(one, result=replace(one.result, models=(replace(one.model, metrics=(record,)),)))
    assert line(loaded, other).status == "pass"


def test_raised_checks_fail_and_those_that_are_missing_are_undecided():
    loaded = policy("checks = [1, 9]")

    def status(loaded, *checks):
        return line(loaded, model({}, checks=checks)).status

    assert status(loaded, made.check(1, "pass"), made.check(9, "warn")) == "fail"
    assert status(loaded, made.check(1, "pass"), made.check(9, "pass"), made.check(15, "warn")) == "pass"
    assert status(loaded, made.check(1, "pass"), made.check(9, "not_run")) == "undecided"
    assert status(loaded, made.check(1, "pass")) == "undecided"
    allowing = policy("checks = [1, 9]\nallow_missing = true")
    assert status(allowing, made.check(1, "pass"), made.check(9, "not_run")) == "pass"


def score(dimension: str, value: float, threat: str | None = None) -> ScoreRecord:
    return ScoreRecord(dimension=dimension, means="", outcome=measured(value, value - 5, value + 5), threat=threat)


def test_scores_are_held_on_their_own_scale():
    one = model({}, scores=[score("adversarial", 40.0, "linf:8/255")])
    assert line(policy('score = "adversarial"\nbound = 30'), one).status == "pass"
    assert line(policy('score = "adversarial"\nbound = 50'), one).status == "fail"
    assert line(policy('score = "corruption"\nbound = 50'), one).status == "undecided"


def test_scores_and_worst_cases_are_read_at_the_pinned_threats_only():
    loaded = policy('score = "adversarial"\nbound = 30', 'worst_case = "every threat"\nbound = 0.5', threats='["linf:8/255"]')
    weak = "adversarial_accuracy_white_box/linf_1-255"
    more = model(
        {WHITE: measured(0.7, 0.6, 0.8), weak: measured(0.1, 0.0, 0.2)},
        scores=[score("adversarial", 40.0, "linf:8/255"), score("adversarial", 1.0, "linf:1/255")],
    )
    both = replace(more, result=replace(more.result, threats=("linf:8/255", "linf:1/255")))
    assert verdict(loaded, both).status == "pass"
    weaker = model({weak: measured(0.9, 0.85, 0.95)}, scores=[score("adversarial", 90.0, "linf:1/255")])
    weaker = replace(weaker, result=replace(weaker.result, threats=("linf:1/255",)))
    statuses = [rule.status for rule in verdict(loaded, weaker).rules]
    assert statuses == ["pass", "fail", "undecided", "undecided"]


def test_the_worst_case_is_the_lower_arm_and_a_failed_white_box_arm_is_not_replaced():
    loaded = policy('worst_case = "every threat"\nat_least = 0.5')
    assert line(loaded, model({WHITE: measured(0.9, 0.85, 0.95), BLACK: measured(0.1, 0.05, 0.2)})).status == "fail"
    found = line(loaded, model({WHITE: Failed(error="out of memory"), BLACK: measured(0.8, 0.7, 0.9)}))
    assert found.status == "undecided" and "out of memory" in found.because
    assert line(loaded, model({WHITE: NotApplicable(because="x"), BLACK: measured(0.8, 0.7, 0.9)})).status == "pass"


@pytest.mark.parametrize("rule", ['worst_case = "every threat"\nbound = 0.1', 'score = "adversarial"\nbound = 10'])
def test_an_audit_without_any_threat_does_not_pass_for_want_of_lines(rule):
    one = model({}, scores=[score("adversarial", 40.0, "linf:8/255")])
    assert line(policy(rule), replace(one, result=replace(one.result, threats=()))).status == "undecided"


def test_the_minimal_policy_asks_for_more_than_guessing():
    good = [made.check(number, "pass") for number in (1, 9, 12, 14, 17)]
    loaded = parse_policy(MINIMAL_TEXT, "minimal")
    halves = {"classes": (made.ClassCount(name="a", count=50), made.ClassCount(name="b", count=50))}
    passing = model({CLEAN: measured(0.9, 0.85, 0.95), WHITE: measured(0.7, 0.6, 0.8)}, checks=good, **halves)
    found = verdict(loaded, passing)
    assert found.status == "pass"
    assert "not pinned: threats, min_samples" in found.sentence
    guessing = model({CLEAN: measured(0.9, 0.85, 0.95), WHITE: measured(0.3, 0.2, 0.4)}, checks=good, **halves)
    assert verdict(loaded, guessing).status == "fail"


def test_the_sentence_counts_failed_and_undecided_lines():
    loaded = policy('metric = "clean_accuracy"\nbound = 0.8', 'metric = "attack_success_rate/linf_8-255"\nbound = 0.8')
    assert verdict(loaded, model({CLEAN: measured(0.1, 0, 0.2)})).sentence.startswith("1 of 3 requirements fails, 1 is undecided")


# What a verdict rests on.


def test_the_files_are_those_that_were_audited():
    one = model({CLEAN: measured(0.9, 0.85, 0.95)})
    same = CurrentModel.of(one.model.identity)
    for current, status in (
        (same, "pass"),
        (replace(same, digest="f" * 64), "fail"),
        (CurrentModel(reference="models:/digits@champion", because="there is no such alias"), "undecided"),
    ):
        found = verdict(policy(), one, current=current)
        assert (found.status, found.rules[0].status) == (status, status)
    assert "there is no such alias" in found.rules[0].because


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("threats", '["linf:16/510"]', '["linf:9/255"]'),
        ("threats", '["linf:8/255"]', '["l2:0.03137254901960784"]'),
        ("min_samples", "100", "101"),
        ("min_profile", '"quick"', '"standard"'),
        ("data_digest", f'"{DIGEST}"', f'"{DIGEST[::-1]}"'),
        ("data_digest", f'"sha256:{DIGEST}"', f'"{DIGEST}#train"'),
        ("max_age_days", "1", "0.9"),
        ("seed", "7", "0"),
    ],
)
def test_each_pin_is_a_line_of_its_own(key, good, bad):
    one = model({CLEAN: measured(0.9, 0.85, 0.95)})
    assert pin(key, one, **{key: good}).status == "pass"
    failed = pin(key, one, **{key: bad})
    assert (failed.status, failed.kind) == ("fail", "pin")


def test_every_pinned_threat_must_have_been_attacked():
    found = verdict(policy(threats='["linf:8/255", "l2:0.5"]'), model({CLEAN: measured(0.9, 0.85, 0.95)}))
    assert [rule.status for rule in found.rules if rule.key == "requires/threats"] == ["pass", "fail"]


@pytest.mark.parametrize(
    ("white", "black", "status"),
    [
        (measured(0.7, 0.6, 0.8), measured(0.8, 0.7, 0.9), "pass"),
        (NotApplicable(because="it gives labels only"), measured(0.8, 0.7, 0.9), "pass"),
        (NotApplicable(because=BLACK_BOX_ASKED), measured(0.8, 0.7, 0.9), "undecided"),
        (Failed(error="e"), Failed(error="e"), "undecided"),
        (Failed(error="e"), measured(0.8, 0.7, 0.9), "pass"),
    ],
)
def test_a_threat_counts_as_attacked_only_with_all_that_the_model_allows(white, black, status):
    """Queries alone break fewer images, so asking for nothing else must not be a way around the white-box attacks."""
    one = model({CLEAN: measured(0.9, 0.85, 0.95), WHITE: white, BLACK: black})
    assert pin("threats", one, threats='["linf:8/255"]').status == status
    text = example(one.result, [one.model], NOW)
    assert tomllib.loads(text)["requires"]["threats"] == (["linf:8/255"] if status == "pass" else "any")


def test_a_registered_dataset_is_pinned_by_its_reference():
    reference = "runs:/0123/#dataset=test"
    one = model({CLEAN: measured(0.9, 0.85, 0.95)}, reference=reference)
    assert pin("data", one, data=f'"{reference}"').status == "pass"
    assert pin("data", one, data='"runs:/0123/#dataset=easy"').status == "fail"


def test_another_part_of_the_same_archive_is_other_data():
    one = model({CLEAN: measured(0.9, 0.85, 0.95)}, reference="digits.npz#train")
    assert pin("data_digest", one, data_digest=f'"{DIGEST}"').status == "fail"
    assert pin("data_digest", one, data_digest=f'"{DIGEST}#train"').status == "pass"


SPEC = {"layout": "NCHW", "channels": "RGB", "range": "0 to 1", "mean": "0", "std": "1", "dtype": "float32", "outputs": "auto"}


def spec(**changed: str) -> str:
    pairs = {"shape": "1x8x8", **SPEC, **changed}
    return "{ " + ", ".join(f'{key} = "{value}"' for key, value in pairs.items()) + " }"


def test_the_input_specification_is_pinned_key_by_key():
    one = model({CLEAN: measured(0.9, 0.85, 0.95)}, spec=SPEC)
    assert pin("input_spec", one, input_spec=spec()).status == "pass"
    for key, value in (("range", "0 to 255"), ("mean", "0.5"), ("shape", "1x16x16"), ("outputs", "logits")):
        found = pin("input_spec", one, input_spec=spec(**{key: value}))
        assert found.status == "fail" and f"{key} {value}" in found.because
        assert pin("input_spec", one, input_spec=spec(**{key: "any"})).status == "pass"
    unsaid = model({CLEAN: measured(0.9, 0.85, 0.95)}, spec={"layout": "NCHW"})
    assert pin("input_spec", unsaid, input_spec=spec()).status == "undecided"


@pytest.mark.parametrize(
    ("created", "status"),
    [
        ((NOW - timedelta(days=30)).isoformat(), "pass"),
        ((NOW - timedelta(days=30, seconds=1)).isoformat(), "fail"),
        ((NOW + timedelta(minutes=30)).isoformat(), "pass"),
        ((NOW + timedelta(days=1)).isoformat(), "fail"),
        ("2026-11-30T12:00:00", "undecided"),
        ("yesterday", "undecided"),
    ],
)
def test_an_old_result_and_a_false_date_do_not_pass(created, status):
    one = model({CLEAN: measured(0.9, 0.85, 0.95)})
    dated = replace(one, result=replace(one.result, created=created))
    assert pin("max_age_days", dated, max_age_days="30").status == status


def test_a_profile_that_nobody_knows_is_undecided():
    one = model({CLEAN: measured(0.9, 0.85, 0.95)})
    assert (
        pin("min_profile", replace(one, result=replace(one.result, profile="turbo")), min_profile='"quick"').status == "undecided"
    )


# Non-inferiority.

NOT_WORSE = f'metric = "{WHITE}"\nnot_worse_than = "models:/digits@champion"\nmargin = 0.02'


def compared(one, other, rule=NOT_WORSE):
    return line(policy(rule), one, references={"models:/digits@champion": other})


def robust(right: int, total: int, version: str = "1"):
    return audited({WHITE: first(right, total)}, version=version)


def test_no_worse_passes_at_500_is_undecided_at_50_and_a_regression_fails():
    assert compared(robust(300, 500, "2"), robust(300, 500)).status == "pass"
    small = compared(robust(30, 50, "2"), robust(30, 50))
    assert small.status == "undecided"
    assert "50 examples" in small.because and "more examples may decide it" in small.because
    worse = compared(robust(270, 500, "4"), robust(300, 500))
    assert worse.status == "fail" and worse.measured == "-6.0 points"
    assert (worse.kind, worse.limit) == ("non_inferiority", -0.02)
    slightly = compared(robust(295, 500, "3"), robust(300, 500))
    assert slightly.status == "undecided", "1 point worse, and up to 2 cannot be excluded"


def test_the_bound_is_tangos_at_one_sided_95_percent():
    """Without a discordant pair the score interval solves n d^2 = z^2 |d| (1 - |d|): |d| = z^2 / (n + z^2)."""
    z = 1.6448536269514722
    least = next(n for n in range(50, 500) if z**2 / (n + z**2) < 0.02)
    assert compared(robust(least, least, "2"), robust(least, least)).status == "pass"
    assert compared(robust(least - 1, least - 1, "2"), robust(least - 1, least - 1)).status == "undecided"


@pytest.mark.parametrize("n", [50, 200])
def test_a_model_that_is_worse_by_the_margin_passes_at_most_once_in_twenty(n):
    """Half of the outcomes are shared, as between versions of one model; 4 standard errors of the simulation are allowed."""
    rng, trials, passed = np.random.default_rng(n), 300, 0
    for _ in range(trials):
        shared, common = rng.random(n) < 0.5, rng.random(n) < 0.6
        one = np.where(shared, common, rng.random(n) < 0.56)
        other = np.where(shared, common, rng.random(n) < 0.60)
        found = compared(audited({WHITE: column(one)}, version="2"), audited({WHITE: column(other)}))
        passed += found.status == "pass"
    assert passed / trials <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / trials)


def test_where_lower_is_better_no_worse_means_not_higher():
    rule = f'metric = "{MEDIAN}"\nnot_worse_than = "models:/digits@champion"\nmargin = 1.0'
    values = np.linspace(1, 20, 200)
    champion = audited({MEDIAN: column(values)})
    for change, status in ((0.0, "pass"), (-5.0, "pass"), (5.0, "fail")):
        found = compared(audited({MEDIAN: column(values + change + 1e-9 * values)}, version="2"), champion, rule)
        assert found.status == status, found
        assert found.limit == 1.0


def test_a_comparison_with_itself_or_with_another_reading_of_the_images_says_so():
    itself = compared(robust(300, 500), robust(300, 500))
    assert itself.status == "pass" and "that is this very model, file by file" in itself.because
    one, other = (audited({WHITE: first(300, 500)}, version=name, spec={"mean": mean}) for name, mean in (("2", "0"), ("1", "9")))
    found = compared(one, other)
    assert "they read their images in different ways (mean)" in found.because and "very model" not in found.because
    assert "images in different ways" not in compared(robust(300, 500, "2"), robust(300, 500)).because


def test_a_reference_that_was_given_its_images_otherwise_than_pinned_is_none():
    loaded = policy(NOT_WORSE, input_spec=spec())
    one = audited({WHITE: first(300, 500)}, version="2", spec=SPEC)
    for mean, status in (("0", "pass"), ("0.25", "undecided")):
        other = audited({WHITE: first(300, 500)}, version="1", spec={**SPEC, "mean": mean})
        found = verdict(loaded, one, references={"models:/digits@champion": other}).rules[-1]
        assert found.status == status, found.because
    assert "another input specification: mean 0.25" in found.because


def test_what_cannot_be_compared_is_undecided_and_says_why():
    other = compared(
        robust(300, 500, "2"),
        audited({WHITE: first(300, 500)}, digest="1" * 64, **{"sample_digest": "ef" * 32}, ids=[f"y{k}" for k in range(500)]),
    )
    assert other.status == "undecided" and "not comparable" in other.because
    absent = compared(robust(300, 500, "2"), "there is no registered model 'digits'")
    assert (absent.status, absent.because) == ("undecided", "there is no registered model 'digits'")
    assert line(policy(NOT_WORSE), robust(300, 500)).status == "undecided"
    without = audited({CLEAN: first(90)}, version="2")
    assert compared(without, audited({CLEAN: first(90)})).status == "undecided"


# Properties.

OUTCOMES = (
    measured(0.9, 0.85, 0.95),
    NotApplicable(because="n"),
    Undefined(because="u"),
    Failed(error="f"),
    Measured(value=1.0, samples=3, why_no_interval="too few"),
    None,
)


@pytest.mark.parametrize("allowed", [False, True])
def test_no_policy_passes_on_a_value_that_is_missing_unless_its_rule_allows_it(allowed):
    more = "\nallow_missing = true" if allowed else ""
    loaded = policy('metric = "clean_accuracy"\nbound = 0.5' + more, f'metric = "{WHITE}"\nat_least = 0.5' + more)
    for clean, white in itertools.product(OUTCOMES, OUTCOMES):
        outcomes = {key: outcome for key, outcome in ((CLEAN, clean), (WHITE, white)) if outcome is not None}
        found = verdict(loaded, model(outcomes))
        without_interval = any(isinstance(each, Measured) and each.interval is None for each in (clean, white))
        whole = all(isinstance(each, Measured) for each in (clean, white)) and not without_interval
        # What failed is not missing: it might have been measured.
        failed = any(isinstance(each, Failed) for each in (clean, white))
        assert (found.status == "pass") == (whole or (allowed and not without_interval and not failed)), (clean, white)
        assert found.status in {"pass", "undecided"}


def test_an_example_policy_loads_and_is_passed_by_the_result_it_was_written_from():
    checks = [made.check(1, "pass"), made.check(9, "warn"), made.check(5, "not_run")]
    hostile = 'x"\n]]\\ \x1b[31m\u202e'
    one = model(
        {CLEAN: measured(0.9, 0.85, 0.95), WHITE: measured(0.7, 0.616, 0.8), BLACK: Undefined(because="u")},
        scores=[score("adversarial", 60.2, "linf:8/255")], checks=checks, spec=SPEC, name=hostile, reference="digits.npz#test",
    )  # fmt: skip
    text = example(one.result, [one.model], NOW)
    loaded = parse_policy(text, "example")
    found = verdict(loaded, one)
    assert found.status == "pass", [rule for rule in found.rules if rule.status != "pass"]
    assert loaded.policy.requires.opted_out == ()
    assert [rule.bound for rule in loaded.policy.rule] == [0.85, 0.61, 55, None]
    assert loaded.policy.rule[-1].checks == (1,)
    years = NOW + timedelta(days=700)
    assert verdict(parse_policy(example(one.result, [one.model], years), "old"), one, now=years).status == "pass"


def test_an_example_of_a_result_that_measured_little_asks_for_little():
    one = model({CLEAN: Measured(value=1.0, samples=3, why_no_interval="too few")}, checks=[made.check(1, "pass")], spec=SPEC)
    loaded = parse_policy(example(one.result, [one.model], NOW), "example")
    assert [rule.checks for rule in loaded.policy.rule] == [(1,)]
    assert verdict(loaded, one).status == "pass"
