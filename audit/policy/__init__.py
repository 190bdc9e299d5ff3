"""A policy: what a verdict rests on, and what must hold. A TOML file, checked against the catalogue when it is loaded.

    name = "release"

    [requires]                          # what the verdict rests on; "any" opts out of a line
    threats = ["linf:8/255"]            # attacked within all of these; worst cases and scores are read at these alone
    min_samples = 500
    min_profile = "standard"
    data_digest = "9f0c..."             # with the part of its reference, "9f0c...#test"; or data = "runs:/RUN#dataset=NAME"
    max_age_days = 30
    seed = 0                            # may be left out; pinned, nobody can draw samples until one passes

    [requires.input_spec]               # what the model was given: also layout, channels, mean, std, dtype, outputs, colour, size
    shape = "1x28x28"
    range = "0 to 1"

    [[rule]]
    metric = "clean_accuracy"
    bound = 0.9                         # at least or at most, by the metric's better side

    [[rule]]
    score = "adversarial"
    at_least = 50

    [[rule]]
    metric = "adversarial_accuracy_white_box/linf_8-255"
    not_worse_than = "models:/fashion@champion"     # or "reference", the reference model of the same audit
    margin = 0.02

    [[rule]]
    checks = [1, 9, 12]

A bound is held against the worse end of the interval unless the rule says `read = "value"`; `at_least = "chance"` means the largest
class share. A value that is missing makes the rule undecided, which fails the gate unless the rule says `allow_missing = true`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from audit import toml_file
from audit.errors import InputError
from audit.metrics.keys import metric_key
from audit.policy.values import (
    ANY,
    CHANCE,
    Bound,
    Pinned,
    known_metric,
    matching,
    number_or_chance,
    one_of,
    range_words,
    threat,
    words,
)
from audit.profiles import PROFILES
from audit.vocabulary import Better, Threat, Unit

__all__ = [
    "ANY", "CHANCE", "REFERENCE", "SCORES", "InputPins", "LoadedPolicy", "Policy", "Requires", "Rule", "load_policy",
    "parse_policy",
]  # fmt: skip

SCORES = ("clean", "adversarial", "local margin", "corruption", "stability")
# Spelled in a policy for the reference model of the same audit.
REFERENCE = "reference"
_DIGEST = "it is no sha256 of 64 hexadecimal digits, with #PART behind it where the data reference has one"
_REGISTERED = "it is no registered dataset, runs:/RUN#dataset=NAME; other references can lead to new content, so pin data_digest"
_RANGE = "it is not of the form 0 to 255"
_SHAPE = "it is not of the form 1x28x28: channels, height and width as the images are given"
_SUBJECTS = ("metric", "score", "worst_case", "checks")
_BOUNDS = ("at_least", "at_most", "bound", "not_worse_than")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InputPins(_Table):
    """What the model was given, as a result spells it; "any" opts out of a key. Only keys that change no image may be left out."""

    shape: Pinned[Annotated[str, matching(r"\d+x\d+x\d+", _SHAPE)]]
    layout: Pinned[str]
    channels: Pinned[str]
    range: Annotated[Pinned[Annotated[str, matching(r"\S+ to \S+", _RANGE)]], BeforeValidator(range_words)]
    mean: Annotated[Pinned[str], BeforeValidator(words)]
    std: Annotated[Pinned[str], BeforeValidator(words)]
    dtype: Pinned[str]
    outputs: Pinned[str]
    colour: Pinned[str] = "keep"
    size: Pinned[str] = "as given"


class Requires(_Table):
    """What a verdict rests on; None where the policy says "any"."""

    threats: Pinned[Annotated[tuple[Annotated[Threat, BeforeValidator(threat)], ...], Field(min_length=1)]]
    min_samples: Pinned[Annotated[int, Field(ge=1, strict=True)]]
    min_profile: Pinned[Annotated[str, one_of(tuple(profile.name for profile in PROFILES), "profile")]]
    data_digest: Pinned[Annotated[str, matching(r"(sha256:)?[0-9a-f]{64}(#.+)?", _DIGEST)]] = None
    data: Pinned[Annotated[str, matching(r"runs:/.+", _REGISTERED)]] = None
    input_spec: Pinned[InputPins]
    max_age_days: Pinned[Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]]
    seed: Pinned[Annotated[int, Field(ge=0, strict=True)]] = None

    @model_validator(mode="after")
    def _one_data_pin(self) -> Requires:
        if len({"data_digest", "data"} & self.model_fields_set) != 1:
            raise ValueError('requires exactly one of data_digest and data ("any" opts out)')
        return self

    @property
    def opted_out(self) -> tuple[str, ...]:
        """The lines that say "any", as the file spells them."""
        pins = {name: value for name, value in self if name in self.model_fields_set}
        inner = {} if self.input_spec is None else {f"input_spec.{name}": value for name, value in self.input_spec}
        return tuple(name for name, value in (pins | inner).items() if value is None)


class Rule(_Table):
    """One line of a policy: exactly one of `metric`, `score`, `worst_case` or `checks`."""

    metric: Annotated[str, AfterValidator(known_metric)] | None = None
    score: Annotated[str, one_of(SCORES, "score")] | None = None
    worst_case: Literal["every threat"] | None = None
    checks: Annotated[tuple[Annotated[int, Field(ge=1, le=17, strict=True)], ...], Field(min_length=1)] | None = None
    at_least: Annotated[float | str, PlainValidator(number_or_chance)] | None = None
    at_most: Bound | None = None
    bound: Bound | None = None
    not_worse_than: Annotated[str, Field(min_length=1)] | None = None
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)] | None = None
    read: Literal["interval", "value"] = "interval"
    allow_missing: bool = False

    @model_validator(mode="after")
    def _one_subject_one_bound(self) -> Rule:
        subjects = [name for name in _SUBJECTS if getattr(self, name) is not None]
        if len(subjects) != 1:
            raise ValueError(f"a rule names exactly one of {', '.join(_SUBJECTS)}")
        bounds = [name for name in _BOUNDS if getattr(self, name) is not None]
        if len(bounds) != (0 if self.checks is not None else 1):
            raise ValueError(f"a rule has exactly one of {', '.join(_BOUNDS)} (and none beside checks)")
        neither = self.metric is not None and self.better is Better.NEITHER
        if neither and self.bound is not None:
            raise ValueError(f"neither side of {self.metric} is the better one; write at_least or at_most instead of bound")
        if (self.not_worse_than is None) != (self.margin is None):
            raise ValueError("not_worse_than and margin go together; margin is in the metric's unit, and above 0")
        if self.not_worse_than is not None:
            if self.metric is None or neither:
                raise ValueError("not_worse_than compares a metric that has a better side; name one with metric")
            extra = {"read", "allow_missing"} & self.model_fields_set
            if extra:
                raise ValueError(f"{', '.join(sorted(extra))} has no meaning beside not_worse_than; leave it out")
        return self

    @model_validator(mode="after")
    def _on_its_scale(self) -> Rule:
        """Percent where a share is read, or a share where a score is, would be a bound or a margin that every model keeps."""
        given = [each for each in (self.at_least, self.at_most, self.bound) if isinstance(each, float)]
        if self.score is not None:
            if any(not 0 <= each <= 100 or 0 < each < 1 for each in given):
                raise ValueError("scores run from 0 to 100; write 50 for half of it")
            return self
        key = None if self.metric is None else metric_key(self.metric)
        if key is not None and key.metric.unit_of(key.variant) is not Unit.SHARE:
            return self
        if any(not 0 <= each <= 1 for each in given):
            raise ValueError("a share of images is between 0 and 1; write 0.9 for 90 %")
        if self.margin is not None and self.margin >= 1:
            raise ValueError("margin is a share of images here; write 0.02 for 2 points")
        return self

    @property
    def better(self) -> Better:
        """The better side of what the rule reads: scores and accuracies under attack are higher when better."""
        return metric_key(self.metric).metric.better if self.metric is not None else Better.HIGHER

    @property
    def is_lower_bound(self) -> bool:
        """Whether the value must be at least the bound."""
        return self.at_least is not None or (self.bound is not None and self.better is Better.HIGHER)


class Policy(_Table):
    """What a verdict rests on, and a list of rules."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    requires: Requires
    rule: Annotated[tuple[Rule, ...], Field(min_length=1)]

    @property
    def references(self) -> tuple[str, ...]:
        """What other models the rules compare with, each once, as the file spells it."""
        return tuple(dict.fromkeys(rule.not_worse_than for rule in self.rule if rule.not_worse_than is not None))


@dataclass(frozen=True, kw_only=True)
class LoadedPolicy:
    """A policy and the sha256 of the text it came from."""

    policy: Policy
    digest: str


# It sets no threshold of its own: a model must beat guessing, also under attack, and no check may void those numbers.
MINIMAL_TEXT = """name = "minimal"

[requires]
threats = "any"
min_samples = "any"
min_profile = "any"
data_digest = "any"
input_spec = "any"
max_age_days = "any"

[[rule]]
metric = "clean_accuracy"
at_least = "chance"

[[rule]]
worst_case = "every threat"
at_least = "chance"

[[rule]]
checks = [1, 12, 17]

[[rule]]
checks = [9, 14]
allow_missing = true      # no gradients, or no attack that succeeded
"""


def parse_policy(text: str, where: str) -> LoadedPolicy:
    """Read a policy from TOML text; `where` names it in errors.

    Raises:
        InputError: it is not TOML, or a field is unknown, missing or out of range; the sentence names the line and the nearest
            valid name.
    """
    return _loaded(toml_file.parse(text, f"policy {where}"))


def load_policy(path: Path | None) -> LoadedPolicy:
    """The policy in a file, or the built-in `minimal` one.

    Raises:
        InputError: the file cannot be read or is not a policy.
    """
    return parse_policy(MINIMAL_TEXT, "minimal") if path is None else _loaded(toml_file.read(path, "policy"))


def _loaded(document: toml_file.Document) -> LoadedPolicy:
    policy = toml_file.validate(document, Policy)
    pinned = policy.requires.threats or ()
    budgets = {threat.budget for threat in pinned}
    for index, rule in enumerate(policy.rule):
        threat = None if rule.metric is None else metric_key(rule.metric).threat
        if threat is not None and budgets and threat.budget not in budgets:
            raise InputError(
                f"{document.place('rule', index, 'metric')}: {threat} is none of the threats under [requires]; add it there, or "
                f"read the metric at {' or '.join(map(str, pinned))}"
            )
    return LoadedPolicy(policy=policy, digest=hashlib.sha256(document.text.encode()).hexdigest())
