"""What must hold: bounds on metrics and scores, comparisons with another model, honesty checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from audit import pairing
from audit.audited import Audited
from audit.metrics.keys import metric_key
from audit.metrics.spec import key_of
from audit.policy import CHANCE, REFERENCE, Rule
from audit.result import Failed, Measured, MetricRecord, ModelResult, NotApplicable, Outcome, RuleOutcome, Undefined
from audit.text import printable, redact
from audit.vocabulary import Better, Threat, Unit

# A one-sided 95 % bound is one end of the two-sided interval at this level.
ONE_SIDED = 0.90


def judged(
    rule: Rule, audited: Audited, threats: Sequence[Threat] | None, references: Mapping[str, Audited | str]
) -> list[RuleOutcome]:
    """The lines of one rule. `threats` are those pinned, where worst cases and scores are read; None takes the audit's own."""
    result, model = audited.result, audited.model
    places = tuple(map(Threat.parse, result.threats)) if threats is None else threats
    chance = max((row.count for row in result.data.classes), default=0) / max(1, result.data.samples)
    if rule.checks is not None:
        return [_checked(rule, rule.checks, model)]
    if rule.score is not None:
        return [_score(rule, rule.score, model, threat, chance) for threat in _score_threats(model, rule.score, places)]
    if rule.worst_case is not None:
        lines = [_worst_case(rule, model, threat, chance) for threat in places]
        return lines or [_bounded(rule, "Accuracy under attack", "worst_case", None, chance)]
    key = rule.metric or ""
    record = _record(model, key)
    if rule.not_worse_than is not None and rule.margin is not None:
        return [_not_worse(rule, rule.not_worse_than, rule.margin, audited, record, references)]
    outcome, unit = (None, None) if record is None else (record.outcome, record.unit)
    return [_bounded(rule, _named(key, record), key, outcome, chance, unit=unit)]


def _record(model: ModelResult, key: str) -> MetricRecord | None:
    """The record with this key, however its threat is spelled."""
    exact = model.metric(key)
    if exact is not None:
        return exact
    wanted = metric_key(key)
    return next(
        (
            record
            for record in model.metrics
            if (record.id, record.variant) == (wanted.metric.id, wanted.variant) and _at(record.threat, wanted.threat)
        ),
        None,
    )


def _at(text: str | None, threat: Threat | None) -> bool:
    return (None if text is None else Threat.parse(text).budget) == (None if threat is None else threat.budget)


def _named(key: str, record: MetricRecord | None) -> str:
    if record is None:
        return f"Metric {printable(key)}"
    return record.name + (f", {Threat.parse(record.threat).label}" if record.threat else "")


def _score_threats(model: ModelResult, dimension: str, threats: Sequence[Threat]) -> Sequence[Threat | None]:
    """Where a score is read: at every threat, or once where the dimension has none; no rule is ever without a line."""
    found = [score for score in model.scores if score.dimension == dimension]
    return (threats if any(score.threat is not None for score in found) else ()) or (None,)


def _score(rule: Rule, dimension: str, model: ModelResult, threat: Threat | None, chance: float) -> RuleOutcome:
    found = next((score for score in model.scores if score.dimension == dimension and _at(score.threat, threat)), None)
    requirement = f"Score {dimension}" + ("" if threat is None else f", {threat.label}")
    if found is None:
        return _bounded(rule, requirement, f"score/{dimension}", None, chance, scale=100)
    return _bounded(rule, requirement, found.key, found.outcome, chance, scale=100)


def _worst_case(rule: Rule, model: ModelResult, threat: Threat, chance: float) -> RuleOutcome:
    """The lower of the two arms' accuracies; nothing where the white-box arm failed, since it would have been the stronger one."""
    keys = [key_of(f"adversarial_accuracy_{arm}", None, threat) for arm in ("white_box", "black_box")]
    white_box, *_ = arms = [_record(model, key) for key in keys]
    found = [record for record in arms if record is not None and isinstance(record.outcome, Measured)]
    outcome = None if white_box is None else white_box.outcome
    name, key = "Accuracy under attack", keys[0]
    if not isinstance(outcome, Failed) and found:
        lowest = min(found, key=lambda record: record.outcome.value if isinstance(record.outcome, Measured) else 0.0)
        outcome, name, key = lowest.outcome, lowest.name, lowest.key
    return _bounded(rule, f"{name}, {threat.label}", key, outcome, chance, unit=Unit.SHARE.value)


def _bounded(
    rule: Rule, requirement: str, key: str, outcome: Outcome | None, chance: float, *, scale: float = 1.0, unit: str | None = None
) -> RuleOutcome:
    low_side = rule.is_lower_bound
    given = next(each for each in (rule.at_least, rule.at_most, rule.bound) if each is not None)
    limit = chance * scale if given == CHANCE else float(given)
    required = f"{'≥' if low_side else '≤'} {_words(limit, unit)}" + (" (largest class share)" if given == CHANCE else "")

    def line(status: str, measured: str, because: str) -> RuleOutcome:
        return RuleOutcome(
            requirement=requirement, status=status, required=required, measured=measured, because=because,  # type: ignore[arg-type]
            kind="bound", key=key, limit=limit,
        )  # fmt: skip

    if not isinstance(outcome, Measured):
        # What failed was not missing: the next audit may measure it.
        allowed = rule.allow_missing and not isinstance(outcome, Failed)
        words = _missing(outcome) + ("; the rule allows it to be missing" if allowed else "")
        return line("pass" if allowed else "undecided", "missing", words)
    value, read, words = outcome.value, outcome.value, "the value itself"
    if rule.read == "interval":
        if outcome.interval is None:
            return line("undecided", _words(value, unit), f"no interval to hold against the bound: {outcome.why_no_interval}")
        read, words = (outcome.interval.low, "the interval's lower end") if low_side else (outcome.interval.high, "its upper end")
    good, likely = (read >= limit, value >= limit) if low_side else (read <= limit, value <= limit)
    # A value on the right side whose interval crosses the bound has not been shown to be bad, only not to be good.
    status = "pass" if good and likely else "undecided" if likely else "fail"
    side = "meets" if good else "does not meet"
    return line(status, _words(value, unit), f"{words} {_words(read, unit)} {side} the bound, n = {outcome.samples}")


def _not_worse(
    rule: Rule, name: str, margin: float, audited: Audited, record: MetricRecord | None, references: Mapping[str, Audited | str]
) -> RuleOutcome:
    """Not worse by the margin: passes only if the one-sided 95 % bound of the paired difference says so."""
    other = references.get(name, "its audit was not looked up")
    unit = None if record is None else record.unit
    shown = "the reference model" if name == REFERENCE else printable(redact(name), 120)
    requirement = f"{_named(rule.metric or '', record)}, compared with {shown}"
    higher = rule.better is Better.HIGHER
    required = f"> {_signed(-margin, unit)}" if higher else f"< {_signed(margin, unit)}"

    def line(status: str, measured: str, because: str) -> RuleOutcome:
        return RuleOutcome(
            requirement=requirement, status=status, required=required, measured=measured, because=because,  # type: ignore[arg-type]
            kind="non_inferiority", key=rule.metric, limit=-margin if higher else margin,
        )  # fmt: skip

    if isinstance(other, str):
        return line("undecided", "missing", other)
    if record is None:
        return line("undecided", "missing", _missing(None))
    found = pairing.difference(audited, other, record.key, level=ONE_SIDED)
    if isinstance(found, pairing.NotComparable):
        return line("undecided", "missing", f"not comparable with {printable(other.label)}: {printable(found.because)}")
    low, high = found.interval.low, found.interval.high
    worst, best = (low, high) if higher else (-high, -low)
    status = "pass" if worst > -margin else "fail" if best < -margin else "undecided"
    bound = _signed(low if higher else high, unit)
    because = f"one-sided 95 % bound {bound} against {printable(other.label)}, {found.samples} examples in common"
    # Neither a comparison with itself nor a badly audited reference shows in the number.
    if other.model.identity.digest == audited.model.identity.digest:
        because += "; that is this very model, file by file"
    because += "".join(f"; {each.because}" for each in pairing.comparability(audited, other) if each.what == "input spec")
    return line(status, _signed(found.value, unit), because + ("; more examples may decide it" if status == "undecided" else ""))


def _checked(rule: Rule, numbers: Sequence[int], model: ModelResult) -> RuleOutcome:
    found = {check.number: check for check in model.checks if check.number in numbers}
    raised = [check for check in found.values() if check.status == "warn"]
    missing = [check for check in found.values() if check.status == "not_run"]
    absent = [number for number in numbers if number not in found]
    told = [f"check {check.number}: {check.found}" for check in raised]
    told = told or [f"check {check.number} not run: {check.found}" for check in missing]
    told += [f"check {number} is not in this result" for number in absent]
    return RuleOutcome(
        requirement=f"Honesty checks {', '.join(map(str, numbers))}",
        status="fail" if raised else "undecided" if (missing or absent) and not rule.allow_missing else "pass",
        required="not raised",
        measured=f"{len(raised)} raised",
        because="; ".join(told) or "none is raised",
        kind="checks",
        key=f"checks/{'-'.join(map(str, numbers))}",
    )


def _missing(outcome: Outcome | None) -> str:
    match outcome:
        case Undefined(because=because):
            return f"undefined, because {because}"
        case NotApplicable(because=because):
            return f"not applicable, because {because}"
        case Failed(error=error):
            return f"failed, because {error}"
    return "this result has no such value"


def _words(value: float, unit: str | None) -> str:
    if unit == Unit.POINTS.value:
        return f"{100 * value:.1f} points"
    return f"{100 * value:.1f} %" if unit == Unit.SHARE.value else f"{value:.4g}"


def _signed(value: float, unit: str | None) -> str:
    return f"{100 * value:+.1f} points" if unit in {Unit.SHARE.value, Unit.POINTS.value} else f"{value:+.4g}"
