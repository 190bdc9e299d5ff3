"""The gate passes on measured values only, and a policy that cannot be read is refused in a sentence."""

from __future__ import annotations

import pytest

from audit.errors import InputError
from audit.gate import MINIMAL_TEXT, judge, load_policy, parse_policy
from audit.result import (
    CheckRecord,
    ClassCount,
    DataIdentity,
    Failed,
    Interval,
    Measured,
    MetricRecord,
    ModelIdentity,
    ModelResult,
    NotApplicable,
    OverallScore,
    ScoreRecord,
    Undefined,
)
from audit.vocabulary import Better, Threat

THREAT = Threat.parse("linf:8/255")
WHITE = "adversarial_accuracy_white_box/linf_8-255"
BLACK = "adversarial_accuracy_black_box/linf_8-255"
DATA = DataIdentity(
    reference="digits",
    source="digits",
    digest="0" * 64,
    sample_digest="1" * 64,
    total=100,
    samples=100,
    sampling="all examples",
    seed=0,
    image_shape=(1, 8, 8),
    classes=(ClassCount(name="a", count=60), ClassCount(name="b", count=40)),
)


def measured(value: float, low: float, high: float) -> Measured:
    return Measured(value=value, samples=100, interval=Interval(low=low, high=high, method="Wilson"))


def model(outcomes, scores=(), checks=()) -> ModelResult:
    records = tuple(
        MetricRecord(
            key=key,
            id=key.partition("/")[0],
            name="A metric",
            symbol="M",
            family="Task performance",
            unit="share",
            better=Better.HIGHER,
            definition="",
            source="",
            outcome=outcome,
        )
        for key, outcome in outcomes.items()
    )
    identity = ModelIdentity(
        reference="models:/m/1",
        uri="models:/m/1",
        name="m",
        flavour="pytorch",
        digest="2" * 64,
        classes=2,
        runtime="torch",
        device="cpu",
        outputs="logits",
        input_shape=(1, 8, 8),
    )
    return ModelResult(
        identity=identity,
        is_reference=False,
        metrics=records,
        scores=tuple(scores),
        overall=OverallScore(value=None, weakest=None),
        checks=tuple(checks),
        verdict=None,
        curves=(),
        cascades=(),
        classes=(),
        failures=(),
        failures_total=0,
        skipped={},
        forward_passes=0,
        backward_passes=0,
        seconds=0.0,
    )


def check(number: int, status: str) -> CheckRecord:
    return CheckRecord(number=number, title="", status=status, found="found", raised_if="", means="", do="")


def verdict(text: str, subject: ModelResult):
    return judge(subject, DATA, (THREAT,), parse_policy(text, "test"))


def rule(line: str) -> str:
    return f'name = "p"\n[[rule]]\n{line}\n'


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
def test_only_the_worse_end_of_a_measured_interval_passes(outcome, status):
    found = verdict(rule('metric = "clean_accuracy"\nat_least = 0.8'), model({"clean_accuracy": outcome}))
    assert found.status == status
    assert found.rules[0].status == status


def test_upper_bounds_are_held_against_the_upper_end():
    text = rule('metric = "m"\nat_most = 0.5')
    assert verdict(text, model({"m": measured(0.4, 0.3, 0.45)})).status == "pass"
    assert verdict(text, model({"m": measured(0.4, 0.3, 0.55)})).status == "undecided"
    assert verdict(text, model({"m": measured(0.6, 0.5, 0.7)})).status == "fail"


def test_a_rule_may_read_the_value_and_may_allow_a_missing_one():
    text = rule('metric = "m"\nat_least = 0.8\nread = "value"')
    assert verdict(text, model({"m": measured(0.81, 0.5, 0.9)})).status == "pass"
    text = rule('metric = "m"\nat_least = 0.8\nallow_missing = true')
    assert verdict(text, model({"m": NotApplicable(because="x")})).status == "pass"


def test_a_metric_the_result_does_not_have_is_undecided():
    assert verdict(rule('metric = "nonsense"\nat_least = 0'), model({})).status == "undecided"


def test_chance_is_the_largest_class_share():
    text = rule('metric = "clean_accuracy"\nat_least = "chance"')
    assert verdict(text, model({"clean_accuracy": measured(0.7, 0.61, 0.8)})).status == "pass"
    assert verdict(text, model({"clean_accuracy": measured(0.55, 0.45, 0.59)})).status == "fail"


def test_raised_checks_fail():
    text = rule("checks = [1, 9]")
    assert verdict(text, model({}, checks=[check(1, "pass"), check(9, "warn")])).status == "fail"
    assert verdict(text, model({}, checks=[check(1, "pass"), check(9, "pass"), check(15, "warn")])).status == "pass"


def test_a_check_that_was_not_run_is_undecided_unless_the_rule_allows_it():
    subject = model({}, checks=[check(1, "pass"), check(9, "not_run")])
    assert verdict(rule("checks = [1, 9]"), subject).status == "undecided"
    assert verdict(rule("checks = [1, 9]\nallow_missing = true"), subject).status == "pass"


def test_scores_are_held_on_their_own_scale():
    score = ScoreRecord(dimension="adversarial", means="", outcome=measured(40.0, 35, 45), threat="linf:8/255")
    assert verdict(rule('score = "adversarial"\nat_least = 30'), model({}, scores=[score])).status == "pass"
    assert verdict(rule('score = "adversarial"\nat_least = 50'), model({}, scores=[score])).status == "fail"
    assert verdict(rule('score = "corruption"\nat_least = 50'), model({}, scores=[score])).status == "undecided"


def test_minimal_policy_reads_the_white_box_arm_and_falls_back_to_the_black_box_one():
    good = [check(number, "pass") for number in (1, 9, 12, 14, 17)]
    clean = {"clean_accuracy": measured(0.9, 0.85, 0.95)}
    broken = measured(0.1, 0.05, 0.2)
    standing = measured(0.8, 0.7, 0.9)
    assert verdict(MINIMAL_TEXT, model({**clean, WHITE: broken, BLACK: standing}, checks=good)).status == "fail"
    assert verdict(MINIMAL_TEXT, model({**clean, WHITE: NotApplicable(because="x"), BLACK: standing}, checks=good)).status == "pass"
    assert verdict(MINIMAL_TEXT, model({**clean, WHITE: NotApplicable(because="x")}, checks=good)).status == "undecided"


def test_the_worst_case_is_the_lower_arm_and_a_failed_white_box_arm_is_not_replaced():
    text = rule('worst_case = "every threat"\nat_least = 0.5')
    masked = model({WHITE: measured(0.9, 0.85, 0.95), BLACK: measured(0.1, 0.05, 0.2)})
    assert verdict(text, masked).status == "fail"
    crashed = model({WHITE: Failed(error="out of memory"), BLACK: measured(0.8, 0.7, 0.9)})
    found = verdict(text, crashed)
    assert found.status == "undecided" and "out of memory" in found.rules[0].because


def test_sentence_counts_failed_and_undecided_rules():
    text = rule('metric = "m"\nat_least = 0.8') + '[[rule]]\nmetric = "n"\nat_least = 0.8\n'
    found = verdict(text, model({"m": measured(0.1, 0, 0.2)}))
    assert found.sentence == "1 of 2 requirements fails, 1 is undecided"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "not valid TOML"),
        ('name = "p"', "rule"),
        (rule('metrc = "m"\nat_least = 1'), "did you mean metric"),
        (rule('metric = "m"'), "exactly one of at_least, at_most"),
        (rule('metric = "m"\nat_least = 1\nat_most = 2'), "exactly one of at_least, at_most"),
        (rule('metric = "m"\nscore = "clean"\nat_least = 1'), "exactly one of metric, score"),
        (rule("checks = [18]"), "less than or equal to 17"),
        (rule("checks = []"), "at least 1"),
        (rule('metric = "m"\nat_least = nan'), "finite"),
        (rule('metric = "m"\nat_least = true'), "valid number"),
        (rule('metric = "m"\nat_least = "lots"'), "at_least"),
    ],
)
def test_a_wrong_policy_is_one_sentence_with_its_place(text, words):
    with pytest.raises(InputError, match="policy test") as caught:
        parse_policy(text, "test")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value).strip() or "TOML" in str(caught.value)


def test_a_missing_policy_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent\.toml cannot be read"):
        load_policy(tmp_path / "absent.toml")


def test_digest_is_that_of_the_text(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(MINIMAL_TEXT)
    assert load_policy(path).digest == load_policy(None).digest
