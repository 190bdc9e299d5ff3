"""What to worry about and what to do next, derived from policy lines, honesty checks and outcomes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from audit.pairing.sensitivity import raw_flatters
from audit.result import AuditResult, Failed, Measured, ModelResult, ScoreRecord
from audit.sinks import report_words as words

# Longer texts go on in their section: page one must stay one sheet.
_WORRY_LIMIT = 190
_STEP_LIMIT = 170
# "Most" is said only where the whole interval lies below half of the 100 points.
MOST = 50
CHECK = "Check"
_KEY_IN_BRACKETS = re.compile(r" \([a-z0-9_/.-]+\)$")
_DIMENSIONS = {"clean": "Clean accuracy", "adversarial": "Under attack"}

Status = Literal["pass", "fail", "undecided", "warn", "not_run", "none"]
Named = Sequence[tuple[ModelResult, str]]


@dataclass(frozen=True, kw_only=True)
class Worry:
    """What happens, then the number."""

    status: Status
    title: str
    text: str
    section: str


def dimension_name(dimension: str) -> str:
    """The heading a reader sees for a score's dimension."""
    return _DIMENSIONS.get(dimension, dimension[:1].upper() + dimension[1:])


def worries_of(subjects: Named, result: AuditResult) -> list[Worry]:
    """Failed lines, undecided lines, raised checks, failed measurements, cautions; the same one of several models only once."""
    found: dict[tuple[Status, str, str], dict[str, str]] = {}

    def add(status: Status, title: str, section: str, label: str, text: str) -> None:
        texts, said = found.setdefault((status, title, section), {}), words.clause(text)
        texts[label] = said if texts.get(label, said) == said else f"{texts[label]}; {said}"

    for model, label in subjects:
        for rule in model.verdict.rules if model.verdict else ():
            # The key in brackets is for section 2.
            title = words.readable(_KEY_IN_BRACKETS.sub("", rule.requirement))
            if rule.status == "fail":
                add("fail", title, "2", label, f"measured {rule.measured}, required {rule.required}")
            elif rule.status == "undecided":
                add("undecided", title, "2", label, rule.because)
        if model.verdict is None or model.verdict.status != "fail":
            for score in model.scores:
                found_low = _most_broken(score)
                if found_low is not None:
                    add("warn", "Attacks break most right answers", "6", label, found_low)
        for cascade in model.cascades:
            if cascade.escalated is not None:
                escalated = f"{words.threat_label(cascade.threat)}: {cascade.escalated}; so the longest search was run"
                add("warn", "Gradients were not believed", "6", label, escalated)
        for check in model.checks:
            if check.status == "warn":
                add("warn", f"{CHECK} {check.number}", "8", label, check.found)
        for record in model.metrics:
            if isinstance(record.outcome, Failed):
                add("warn", f"{record.name} has no value", "5", label, record.outcome.error)
        if model.identity.cautions:
            add("warn", "About the model", "1", label, "; ".join(model.identity.cautions))
        if model.overall.undetermined:
            names = words.listed([dimension_name(name).lower() for name in model.overall.undetermined])
            add("not_run", "The overall score is only an upper limit", "5", label, f"not measured: {names}")
    for (one, label), (other, second) in combinations(subjects, 2):
        flattered = raw_flatters(one, other)
        if flattered is not None:
            who, than = ((label, second), (second, label))[flattered]
            less = f"less sensitive than {than} by its raw outputs (T = 1), more sensitive at the fitted temperature, which counts"
            add("warn", "Raw sensitivity misleads", "5", who, less)
    if result.data.cautions:
        add("warn", "About the data", "4", "", "; ".join(result.data.cautions))
    order: dict[str, int] = {"fail": 0, "undecided": 1, "warn": 2, "not_run": 3}
    ordered = sorted(found.items(), key=lambda item: order[item[0][0]])
    return [
        Worry(status=status, title=words.clipped(title, 80), text=_joined(texts, len(subjects)), section=section)
        for (status, title, section), texts in ordered
    ]


def _most_broken(score: ScoreRecord) -> str | None:
    """What to say when even the upper end of the interval leaves less than half of the right answers standing, else None."""
    outcome = score.outcome
    if score.dimension != "adversarial" or not isinstance(outcome, Measured) or outcome.interval is None:
        return None
    if outcome.interval.high >= MOST:
        return None
    threat = "" if score.threat is None else f"{words.threat_label(score.threat)} leaves "
    share = f"{words.fixed(outcome.value, 0)}{words.NO_BREAK}% ({words.score_interval(outcome.interval)})"
    return f"{threat}{share} of {words.grouped(outcome.samples)} right answers standing"


def _joined(texts: dict[str, str], models: int) -> str:
    """The texts of one worry per model as one: said once where they agree, by the first model where many differ."""
    first = next(iter(texts.values()))
    if models == 1 or list(texts) == [""]:
        return words.clipped(words.sentence(first), _WORRY_LIMIT)
    if len(set(texts.values())) == 1:
        who = "All models" if len(texts) == models else _named(list(texts))
        return words.clipped(f"{who}: {first}.", _WORRY_LIMIT)
    if len(texts) > 2:
        return words.clipped(f"{_named(list(texts))}; {next(iter(texts))}: {first}.", _WORRY_LIMIT)
    room = _WORRY_LIMIT // len(texts) - 12
    return " ".join(f"{words.opening(label)}: {words.clipped(text, room)}." for label, text in texts.items())


def _named(labels: Sequence[str]) -> str:
    return words.opening(words.listed(labels) if len(labels) <= 3 else f"{', '.join(labels[:2])} and {len(labels) - 2} more models")


def steps_of(subjects: Named, result: AuditResult) -> list[str]:
    """What follows from the lines, checks and outcomes, as imperatives."""

    def having(test: Callable[[ModelResult], bool]) -> list[str]:
        return [label for model, label in subjects if test(model)]

    steps: list[str] = []
    failed = having(lambda model: model.verdict is not None and model.verdict.status == "fail")
    undecided = having(lambda model: model.verdict is not None and model.verdict.status == "undecided")
    passed = having(lambda model: model.verdict is not None and model.verdict.status == "pass")
    if failed:
        steps.append(f"Do not release {_lower_named(failed)} under this policy.")
    if undecided:
        steps.append(f"Settle the undecided lines of section 2 before releasing {_lower_named(undecided)}.")
    if passed:
        steps.append(f"Have a person decide on the release of {_lower_named(passed)}: a pass is not a proof.")
    if having(lambda model: model.verdict is None):
        steps.append("Write a policy and judge this result against it, so that the audit ends in a verdict.")
    advice: dict[str, set[int]] = {}
    for check in (check for model, _ in subjects for check in model.checks if check.status == "warn"):
        advice.setdefault(words.clause(check.do), set()).add(check.number)
    for do, numbers in sorted(advice.items(), key=lambda item: min(item[1])):
        title = f"Check{'s' if len(numbers) > 1 else ''} {words.listed([str(number) for number in sorted(numbers)])}"
        steps.append(words.clipped(f"{title}: {do}.", _STEP_LIMIT))
    broken = {record.name for model, _ in subjects for record in model.metrics if isinstance(record.outcome, Failed)}
    if broken:
        steps.append(f"Find out why {words.counted(len(broken), 'value')} failed (section 5), then run the audit again.")
    missing = dict.fromkeys(dimension_name(name).lower() for model, _ in subjects for name in model.overall.undetermined)
    if missing:
        them = "it" if len(missing) == 1 else "them"
        steps.append(f"Test {words.listed(list(missing))} by other means: this audit did not measure {them}.")
    if any(model.failures for model, _ in subjects):
        steps.append("Look at the example failures in section 7 and judge what such errors would cost.")
    if not any(model.is_reference for model in result.models) and len(subjects) == 1:
        steps.append("Audit it again beside the version in use, so that a regression shows.")
    return steps


def _lower_named(labels: Sequence[str]) -> str:
    return words.listed(labels) if len(labels) <= 4 else f"{', '.join(labels[:3])} and {len(labels) - 3} more models"
