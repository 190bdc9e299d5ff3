"""A policy judges a result: one line per rule, and it passes only on measured values.

A policy is a TOML file:

    name = "release-gate"

    [[rule]]
    metric = "adversarial_accuracy_white_box/linf_8-255"
    at_least = 0.5

    [[rule]]
    score = "adversarial"
    at_least = 50

    [[rule]]
    checks = [1, 9, 12]

A bound is held against the worse end of the interval unless the rule says `read = "value"`; `at_least = "chance"` means the largest
class share. A value that is missing makes the rule undecided, which fails the gate unless the rule says `allow_missing = true`.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from audit.errors import InputError
from audit.result import DataIdentity, Failed, Measured, ModelResult, NotApplicable, Outcome, RuleOutcome, Undefined, Verdict
from audit.text import printable
from audit.vocabulary import Threat, Unit

Status = Literal["pass", "fail", "undecided"]


Bound = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class Rule(BaseModel):
    """One line of a policy: exactly one of `metric`, `score`, `worst_case` or `checks`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    metric: str | None = None
    score: str | None = None
    worst_case: Literal["every threat"] | None = None
    checks: Annotated[tuple[Annotated[int, Field(ge=1, le=17)], ...], Field(min_length=1)] | None = None
    at_least: Bound | Literal["chance"] | None = None
    at_most: Bound | None = None
    read: Literal["interval", "value"] = "interval"
    allow_missing: bool = False

    @model_validator(mode="after")
    def _one_subject_one_bound(self) -> Rule:
        subjects = [name for name in ("metric", "score", "worst_case", "checks") if getattr(self, name) is not None]
        if len(subjects) != 1:
            raise ValueError("a rule names exactly one of metric, score, worst_case, checks")
        bounds = [name for name in ("at_least", "at_most") if getattr(self, name) is not None]
        if len(bounds) != (0 if self.checks is not None else 1):
            raise ValueError("a rule has exactly one of at_least, at_most (and none beside checks)")
        return self


class Policy(BaseModel):
    """A named list of rules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=80)]
    rule: Annotated[tuple[Rule, ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class LoadedPolicy:
    """A policy and the sha256 of the text it came from."""

    policy: Policy
    digest: str


# It sets no threshold of its own: a model must beat guessing, also under attack, and no check may void those numbers.
MINIMAL_TEXT = """name = "minimal"

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
        InputError: it is not TOML, or a field is unknown, missing or out of range; the sentence names the nearest valid name.
    """
    try:
        policy = Policy.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"policy {where} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = list(Rule.model_fields) if "rule" in first["loc"] else list(Policy.model_fields)
            near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
            message = (
                f"there is no such field; did you mean {near[0]}?" if near else f"there is no such field; known: {', '.join(known)}"
            )
        raise InputError(f"policy {where}, {printable(place)}: {message}") from error
    return LoadedPolicy(policy=policy, digest=hashlib.sha256(text.encode()).hexdigest())


def load_policy(path: Path | None) -> LoadedPolicy:
    """The policy in a file, or the built-in `minimal` one.

    Raises:
        InputError: the file cannot be read or is not a policy.
    """
    if path is None:
        return parse_policy(MINIMAL_TEXT, "minimal")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"policy {printable(str(path))} cannot be read: {reason}") from error
    return parse_policy(text, printable(str(path)))


def _missing(outcome: Outcome | None) -> str:
    match outcome:
        case None:
            return "this result has no such value"
        case Undefined(because=because):
            return f"undefined, because {because}"
        case NotApplicable(because=because):
            return f"not applicable, because {because}"
        case Failed(error=error):
            return f"failed, because {error}"
    return "measured"


def _words(value: float, unit: str | None) -> str:
    return f"{100 * value:.1f} %" if unit == Unit.SHARE.value else f"{value:.4g}"


def _bounded(
    rule: Rule, requirement: str, outcome: Outcome | None, chance: float, *, scale: float = 1.0, unit: str | None = None
) -> RuleOutcome:
    low_side = rule.at_least is not None
    limit = (
        chance * scale if rule.at_least == "chance" else float(rule.at_least if rule.at_least is not None else rule.at_most or 0)
    )
    required = f"{'≥' if low_side else '≤'} {_words(limit, unit)}" + (" (largest class share)" if rule.at_least == "chance" else "")
    if not isinstance(outcome, Measured):
        status: Status = "pass" if rule.allow_missing else "undecided"
        allowed = "; the rule allows it to be missing" if rule.allow_missing else ""
        return RuleOutcome(
            requirement=requirement, status=status, required=required, measured="missing", because=_missing(outcome) + allowed
        )
    read, words = outcome.value, "the value itself"
    if rule.read == "interval":
        if outcome.interval is None:
            because = f"no interval to hold against the bound: {outcome.why_no_interval}"
            return RuleOutcome(
                requirement=requirement,
                status="undecided",
                required=required,
                measured=_words(outcome.value, unit),
                because=because,
            )
        read, words = (outcome.interval.low, "the interval's lower end") if low_side else (outcome.interval.high, "its upper end")
    good = read >= limit if low_side else read <= limit
    # A value on the right side whose interval crosses the bound has not been shown to be bad, only not to be good.
    status = "pass" if good else ("undecided" if (outcome.value >= limit if low_side else outcome.value <= limit) else "fail")
    side = "meets" if good else "does not meet"
    return RuleOutcome(
        requirement=requirement,
        status=status,
        required=required,
        measured=_words(outcome.value, unit),
        because=f"{words} {_words(read, unit)} {side} the bound, n = {outcome.samples}",
    )


def _worst_case(model: ModelResult, threat: Threat) -> tuple[str, Outcome | None]:
    """The lower of the two arms' accuracies; nothing where the white-box arm failed, since it would have been the stronger one."""
    arms = [model.metric(f"adversarial_accuracy_{arm}/{threat.key}") for arm in ("white_box", "black_box")]
    white_box = None if arms[0] is None else arms[0].outcome
    found = [(record.outcome, record.name) for record in arms if record is not None and isinstance(record.outcome, Measured)]
    if isinstance(white_box, Failed) or not found:
        return "Accuracy under attack", white_box
    outcome, name = min(found, key=lambda pair: pair[0].value)
    return name, outcome


def _checked(rule: Rule, model: ModelResult) -> RuleOutcome:
    wanted = [check for check in model.checks if check.number in (rule.checks or ())]
    raised = [check for check in wanted if check.status == "warn"]
    missing = [check for check in wanted if check.status == "not_run"]
    status: Status = "fail" if raised else ("undecided" if missing and not rule.allow_missing else "pass")
    shown = raised or missing
    word = "" if raised else " not run"
    because = "; ".join(f"check {check.number}{word}: {check.found}" for check in shown) or "none is raised"
    return RuleOutcome(
        requirement=f"Honesty checks {', '.join(map(str, rule.checks or ()))}",
        status=status,
        required="not raised",
        measured=f"{len(raised)} raised",
        because=because,
    )


def _judged(rule: Rule, model: ModelResult, chance: float, threats: tuple[Threat, ...]) -> list[RuleOutcome]:
    if rule.checks is not None:
        return [_checked(rule, model)]
    if rule.score is not None:
        found = [score for score in model.scores if score.dimension == rule.score]
        return [
            _bounded(
                rule, f"Score {score.dimension}" + (f", {score.threat}" if score.threat else ""), score.outcome, chance, scale=100
            )
            for score in found
        ] or [_bounded(rule, f"Score {printable(rule.score)}", None, chance, scale=100)]
    if rule.worst_case is not None:
        outcomes = []
        for threat in threats:
            name, outcome = _worst_case(model, threat)
            outcomes.append(_bounded(rule, f"{name}, {threat.label}", outcome, chance, unit=Unit.SHARE.value))
        return outcomes
    record = model.metric(rule.metric or "")
    if record is None:
        return [_bounded(rule, f"Metric {printable(rule.metric or '')}", None, chance)]
    where = f", {Threat.parse(record.threat).label}" if record.threat else ""
    return [_bounded(rule, record.name + where, record.outcome, chance, unit=record.unit)]


def judge(model: ModelResult, data: DataIdentity, threats: tuple[Threat, ...], loaded: LoadedPolicy) -> Verdict:
    """Hold one model against a policy. Reads the result only: no model, no data."""
    chance = max((row.count for row in data.classes), default=0) / max(1, data.samples)
    rules = tuple(outcome for rule in loaded.policy.rule for outcome in _judged(rule, model, chance, threats))
    failed = sum(rule.status == "fail" for rule in rules)
    undecided = sum(rule.status == "undecided" for rule in rules)
    status: Status = "fail" if failed else ("undecided" if undecided else "pass")
    total = len(rules)
    sentence = f"all {total} requirements are met"
    if failed or undecided:
        parts = [f"{failed} of {total} requirements fail" if failed != 1 else f"1 of {total} requirements fails"] if failed else []
        parts += [f"{undecided} {'is' if undecided == 1 else 'are'} undecided"] if undecided else []
        sentence = ", ".join(parts)
    return Verdict(policy=loaded.policy.name, policy_digest=loaded.digest, status=status, sentence=sentence, rules=rules)
