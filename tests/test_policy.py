"""What a policy may say, and the sentence for what it may not."""

from __future__ import annotations

import pytest

from audit.errors import InputError
from audit.metrics import CATALOG
from audit.metrics.keys import metric_key
from audit.models.input_spec import KEYS
from audit.policy import MINIMAL_TEXT, InputPins, load_policy, parse_policy
from audit.profiles import PROFILES
from audit.settings import Settings
from audit.vocabulary import Better, Threat

DIGEST = "0123456789abcdef" * 4
REQUIRES = {
    "threats": '["linf:8/255"]',
    "min_samples": "500",
    "min_profile": '"standard"',
    "data_digest": f'"{DIGEST}"',
    "input_spec": '"any"',
    "max_age_days": "30",
}
RULE = 'metric = "clean_accuracy"\nbound = 0.9'


def text(rule: str = RULE, without: str | None = None, **requires: str) -> str:
    pins = {key: value for key, value in (REQUIRES | requires).items() if key != without}
    lines = "\n".join(f"{key} = {value}" for key, value in pins.items())
    return f'name = "p"\n[requires]\n{lines}\n[[rule]]\n{rule}\n'


def test_a_policy_says_what_it_pins_and_what_it_leaves_open():
    requires = parse_policy(text(min_samples='"any"'), "test").policy.requires
    assert requires.threats == (Threat.parse("linf:8/255"),)
    assert (requires.min_profile, requires.max_age_days, requires.data_digest) == ("standard", 30, DIGEST)
    assert requires.opted_out == ("min_samples", "input_spec")
    minimal = load_policy(None).policy.requires
    assert minimal.opted_out == ("threats", "min_samples", "min_profile", "data_digest", "input_spec", "max_age_days")


def test_input_pins_are_those_of_an_input_specification_and_take_numbers():
    assert set(InputPins.model_fields) == {"shape", *KEYS}
    spec = (
        '{ shape = "3x32x32", layout = "any", channels = "RGB", range = [0, 255], mean = [0.5, 0.25, 0.125], std = 1, '
        'dtype = "float32", outputs = "auto" }'
    )
    requires = parse_policy(text(input_spec=spec), "test").policy.requires
    assert (requires.input_spec.range, requires.input_spec.mean, requires.input_spec.std) == ("0 to 255", "0.5/0.25/0.125", "1")
    assert requires.opted_out == ("input_spec.layout",)
    # Left out, they say that the images were given as they are.
    assert (requires.input_spec.colour, requires.input_spec.size) == ("keep", "as given")


@pytest.mark.parametrize("missing", REQUIRES)
def test_every_pin_is_written(missing):
    with pytest.raises(InputError, match=r"line 2: (the field requires|requires exactly one of data_digest|requires: requires)"):
        parse_policy(text(without=missing), "test")


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({"threats": '["linf8/255"]'}, "line 3: requires.threats: threat 'linf8/255' is not of the form"),
        ({"threats": "[]"}, "line 3: requires.threats"),
        ({"min_samples": "0"}, "line 4: requires.min_samples"),
        ({"min_samples": "true"}, "line 4: requires.min_samples"),
        ({"min_profile": '"standrd"'}, "line 5: requires.min_profile: there is no profile 'standrd'; did you mean standard?"),
        ({"data_digest": '"abc"'}, "line 6: requires.data_digest: it is no sha256"),
        ({"data": '"any"'}, "exactly one of data_digest and data"),
        ({"max_age_days": "0"}, "line 8: requires.max_age_days"),
        ({"max_age_days": "inf"}, "line 8: requires.max_age_days"),
        ({"max_age_days": "true"}, "line 8: requires.max_age_days"),
        ({"input_spec": '{ rnge = "0 to 1" }'}, "line 7: there is no field requires.input_spec.rnge; did you mean range?"),
        ({"input_spec": '{ range = "0-255" }'}, "line 7"),
        ({"input_spec": f"{{ mean = {'9' * 400} }}"}, "line 7"),
        ({"max_age": "1"}, "line 9: there is no field requires.max_age; did you mean max_age_days?"),
    ],
)
def test_a_wrong_pin_is_one_sentence_with_its_line(pins, words):
    with pytest.raises(InputError) as caught:
        parse_policy(text(**pins), "test")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_path_is_no_registered_dataset():
    given = text(without="data_digest").replace("[requires]", '[requires]\ndata = "/data/test.npz"')
    with pytest.raises(InputError, match="it is no registered dataset"):
        parse_policy(given, "test")
    given = given.replace("/data/test.npz", "runs:/0123/#dataset=test")
    assert parse_policy(given, "test").policy.requires.data == "runs:/0123/#dataset=test"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            'metric = "clean_acuracy"\nbound = 1',
            "line 10: rule.metric: there is no metric 'clean_acuracy'; did you mean clean_accuracy?",
        ),
        ('metrc = "clean_accuracy"\nbound = 1', "line 10: there is no field rule.metrc; did you mean metric?"),
        ('metric = "clean_accuracy"', "exactly one of at_least, at_most, bound, not_worse_than"),
        ('metric = "clean_accuracy"\nbound = 1\nat_most = 2', "exactly one of at_least"),
        ('metric = "clean_accuracy"\nscore = "clean"\nbound = 1', "exactly one of metric, score"),
        ('metric = "adversarial_accuracy_white_box"\nbound = 1', "as in adversarial_accuracy_white_box/linf_8-255"),
        ('metric = "adversarial_accuracy_white_box/linf_1-255"\nbound = 0', "line 10: linf:1/255 is none of the threats"),
        ('metric = "average_lp_distortion/linf_8-255"\nat_least = 1', "has several values; write average_lp_distortion/l0/THREAT"),
        ('metric = "average_lp_distortion/l7/linf_8-255"\nat_least = 1', "has no variant 'l7'"),
        ('metric = "average_lp_distortion/l2/linf_8-255"\nbound = 1', "write at_least or at_most instead of bound"),
        ('metric = "clean_accuracy/x"\nbound = 1', "has no variant 'x'; leave it out"),
        ('score = "advesarial"\nbound = 1', "there is no score 'advesarial'; did you mean adversarial?"),
        ('worst_case = "any threat"\nbound = 1', "did you mean every threat?"),
        ("checks = [18]", "less than or equal to 17"),
        ("checks = []", "at least 1"),
        ("checks = [true]", "valid integer"),
        ("checks = [1]\nbound = 1", "and none beside checks"),
        ('metric = "clean_accuracy"\nat_least = nan', "neither a finite number nor"),
        ('metric = "clean_accuracy"\nat_least = true', "neither a finite number nor"),
        ('metric = "clean_accuracy"\nbound = inf', "finite"),
        ('metric = "clean_accuracy"\nnot_worse_than = "reference"', "not_worse_than and margin go together"),
        ('metric = "clean_accuracy"\nbound = 1\nmargin = 0.1', "not_worse_than and margin go together"),
        ('metric = "clean_accuracy"\nnot_worse_than = "reference"\nmargin = 0.0', "line 12: rule.margin"),
        ('metric = "clean_accuracy"\nnot_worse_than = "reference"\nmargin = -0.1', "line 12: rule.margin"),
        (
            'metric = "clean_accuracy"\nnot_worse_than = "reference"\nmargin = 0.1\nallow_missing = true',
            "allow_missing has no meaning",
        ),
        ('score = "clean"\nnot_worse_than = "reference"\nmargin = 0.1', "not_worse_than compares a metric"),
        ('metric = "clean_accuracy"\nat_least = 90', "line 9: rule: a share of images is between 0 and 1; write 0.9 for 90 %"),
        ('metric = "attack_success_rate/linf_8-255"\nbound = 20', "a share of images is between 0 and 1"),
        ('worst_case = "every threat"\nbound = 50', "a share of images is between 0 and 1"),
        ('metric = "clean_accuracy"\nat_least = -1', "a share of images is between 0 and 1"),
        ('metric = "clean_accuracy"\nnot_worse_than = "reference"\nmargin = 2', "margin is a share of images here; write 0.02"),
        ('score = "adversarial"\nat_least = 0.5', "scores run from 0 to 100; write 50 for half of it"),
        ('score = "adversarial"\nat_least = 101', "scores run from 0 to 100"),
        (f'metric = "clean_accuracy"\nat_least = {"9" * 400}', "neither a finite number nor"),
        ('metric = "average_lp_distortion/l2/linf_8-255"\nnot_worse_than = "reference"\nmargin = 0.1', "that has a better side"),
    ],
)
def test_a_wrong_rule_is_one_sentence_with_its_line(rule, words):
    with pytest.raises(InputError, match="policy test, line ") as caught:
        parse_policy(text(rule), "test")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_direction_comes_from_the_catalogue():
    for key, lower in (("clean_accuracy", True), ("attack_success_rate/linf_8-255", False)):
        (rule,) = parse_policy(text(f'metric = "{key}"\nbound = 0.5'), "test").policy.rule
        assert rule.is_lower_bound is lower
        assert rule.better is (Better.HIGHER if lower else Better.LOWER)


@pytest.mark.parametrize("metric", CATALOG, ids=lambda metric: metric.id)
def test_every_key_that_an_audit_writes_is_known(metric):
    from audit.metrics.spec import key_of

    threat = Threat.parse("linf:8/255") if metric.per_threat else None
    for profile in PROFILES:
        variants = metric.variants(Settings.of(profile.name), threat) if metric.variants else (None,)
        for variant in variants:
            found = metric_key(key_of(metric.id, variant, threat))
            assert (found.metric, found.variant, found.threat) == (metric, variant, threat)


def test_digest_is_that_of_the_text(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(MINIMAL_TEXT)
    assert load_policy(path).digest == load_policy(None).digest


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"policy .*absent\.toml cannot be read"):
        load_policy(tmp_path / "absent.toml")
