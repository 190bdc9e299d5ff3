"""A policy written from a result, commented: what the result rests on is pinned, and the bounds are what it shows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from audit.gate.pins import ARMS, attacked, data_part, input_words
from audit.metrics.spec import key_of
from audit.policy import ANY, InputPins
from audit.result import AuditResult, CheckRecord, Measured, ModelResult, Outcome
from audit.text import printable, redact
from audit.vocabulary import Threat

_DAYS = 30


def example(result: AuditResult, models: Sequence[ModelResult], now: datetime) -> str:
    """A commented policy that `models` of the result pass at `now`.

    Bounds are the lower ends of their intervals, rounded down; what was not measured is left out, and a comment says why.
    """
    blocks = ["\n".join(_head(result, models, now)), *_bounds(result, models), _checks(models), _non_inferiority(result)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _head(result: AuditResult, models: Sequence[ModelResult], now: datetime) -> Iterator[str]:
    labels = ", ".join(printable(model.identity.label, 120) for model in models)
    yield f"# Written by `audit policy init` from the audit of {_comment(labels)}, {result.created[:10]}."
    yield "# Change the bounds to what you need before you gate another model by it."
    yield f"name = {_text(_policy_name(models))}"
    yield ""
    yield '# What the verdict rests on: an audit of less does not pass, whatever its numbers are. "any" opts out of a line.'
    yield "[requires]"
    yield from _threats(result, models)
    yield f"min_samples = {result.data.samples}"
    yield f"min_profile = {_text(result.profile)}"
    yield f"data_digest = {_text(_data(result))}"
    yield f"max_age_days = {_age(result, now)}"
    yield f"seed = {result.data.seed}                 # with the seed pinned, nobody can draw samples until one passes"
    yield ""
    yield "# What the model is given: an audit with another normalisation is an audit of another model."
    yield "[requires.input_spec]"
    for key in InputPins.model_fields:
        values = {input_words(model.identity).get(key, ANY) for model in models}
        yield f"{key} = {_text(values.pop() if len(values) == 1 else ANY)}"


def _threats(result: AuditResult, models: Sequence[ModelResult]) -> Iterator[str]:
    """The audit's threats, where they can be pinned: in every model attacked with all that it allows."""
    threats = [Threat.parse(text) for text in result.threats]
    lines = [attacked(threat, result, model) for threat in threats for model in models]
    missing = next((line.because for line in lines if line.status != "pass"), None if threats else "the audit attacked within none")
    if missing is not None:
        yield f"# Not pinned: {_comment(missing)}."
        yield f"threats = {_text(ANY)}"
    else:
        yield f"threats = [{', '.join(_text(text) for text in result.threats)}]"


def _policy_name(models: Sequence[ModelResult]) -> str:
    names = {printable(model.identity.name, 60) for model in models}
    return names.pop() if len(names) == 1 else "release"


def _data(result: AuditResult) -> str:
    digest = result.data.digest.removeprefix("sha256:")
    part = data_part(result.data.reference)
    return (digest + (f"#{part}" if part else "")) if re.fullmatch(r"[0-9a-f]{64}", digest) else ANY


def _age(result: AuditResult, now: datetime) -> int:
    return _DAYS + max(0, math.ceil((now - datetime.fromisoformat(result.created)).total_seconds() / 86400) - 1)


def _bounds(result: AuditResult, models: Sequence[ModelResult]) -> Iterator[str]:
    clean = [_outcome(model, "clean_accuracy") for model in models]
    yield _rule('metric = "clean_accuracy"', "Held against the lower end of the 95 % interval.", clean, 100)
    worst = [outcome for model in models for threat in result.threats for outcome in _worst(model, Threat.parse(threat))]
    yield _rule('worst_case = "every threat"', "Accuracy under attack: the lower of both arms, at every threat.", worst, 100)
    scores = [score.outcome for model in models for score in model.scores if score.dimension == "adversarial"]
    yield _rule('score = "adversarial"', "0 to 100: the share of right answers that survive.", scores, 1)


def _outcome(model: ModelResult, key: str) -> Outcome | None:
    record = model.metric(key)
    return None if record is None else record.outcome


def _worst(model: ModelResult, threat: Threat) -> list[Outcome | None]:
    """The arms that were measured; of none of them, whatever there is instead."""
    arms = [_outcome(model, key_of(arm, None, threat)) for arm in ARMS]
    return [arm for arm in arms if isinstance(arm, Measured)] or arms[:1]


def _rule(subject: str, comment: str, outcomes: Sequence[Outcome | None], steps: int) -> str:
    """A bound that all outcomes keep, in whole 1 / `steps`; or why there is none, as a comment."""
    lows = [outcome.interval.low for outcome in outcomes if isinstance(outcome, Measured) and outcome.interval is not None]
    if len(lows) < len(outcomes) or not lows:
        missing = "Not measured with an interval in every model of this audit, so it is not asked for here."
        return f"# {comment}\n# {missing}\n# [[rule]]\n# {subject}\n# bound = ..."
    # The last digit of a bound must not be above the number it came from.
    bound = math.floor(min(lows) * steps) / steps
    return f"# {comment}\n[[rule]]\n{subject}\nbound = {max(bound, 0.0):g}"


def _checks(models: Sequence[ModelResult]) -> str:
    """The checks that every model passed; the others with what was found, each finding once."""
    found: dict[int, CheckRecord] = {}
    for check in (check for model in models for check in model.checks):
        if check.number not in found or found[check.number].status == "pass":
            found[check.number] = check
    passed = [number for number, check in sorted(found.items()) if check.status == "pass"]
    others: dict[str, list[str]] = {}
    for number, check in sorted(found.items()):
        if check.status != "pass":
            reason = f"{'raised' if check.status == 'warn' else 'not run'}, {_comment(check.found)}"
            others.setdefault(reason, []).append(str(number))
    lines = ["# Honesty checks that must not be raised: `audit report` explains each."]
    lines += [f"# Not among them: {', '.join(numbers)} ({reason})." for reason, numbers in others.items()]
    return "\n".join([*lines, *(["[[rule]]", f"checks = {passed}"] if passed else [])])


def _non_inferiority(result: AuditResult) -> str:
    threat = Threat.parse(result.threats[0]).key if result.threats else "linf_8-255"
    return (
        "# No worse than the version in production, on the same examples: passes only if the one-sided 95 % bound of the paired\n"
        "# difference is above -margin. A small audit cannot show that, and stays undecided.\n"
        "# [[rule]]\n"
        f'# metric = "{ARMS[0]}/{threat}"\n'
        '# not_worse_than = "models:/NAME@champion"      # or "reference": the --reference model of the same audit\n'
        "# margin = 0.02"
    )


def _text(value: str) -> str:
    """A TOML string: JSON escapes the same way, and no control character is left that only TOML forbids."""
    return json.dumps(printable(redact(value), 200), ensure_ascii=False)


def _comment(text: str) -> str:
    return printable(redact(text), 160)
