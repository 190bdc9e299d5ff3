"""A policy judges an audited model: one line per pin and per rule, and it passes only on measured values.

Pure: it reads a result and its per-example columns, and what its caller found out: what the gated model is now, the audits that
rules compare with, and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from audit.audited import Audited
from audit.gate.pins import CurrentModel, input_spec, pins
from audit.gate.rules import judged
from audit.policy import LoadedPolicy, Policy, Requires
from audit.result import RuleOutcome, Verdict
from audit.text import printable

__all__ = ["CurrentModel", "judge"]


def judge(
    audited: Audited,
    loaded: LoadedPolicy,
    *,
    references: Mapping[str, Audited | str],
    now: datetime,
    current: CurrentModel,
) -> Verdict:
    """Hold one audited model against a policy.

    Args:
        audited: the model, as its audit measured it.
        loaded: the policy.
        references: for every `policy.references` the audit it leads to, or why there is none.
        now: the time, with its zone.
        current: what the model that is gated now is.
    """
    policy = loaded.policy
    references = {name: _as_pinned(other, policy.requires) for name, other in references.items()}
    lines = (
        *pins(audited.result, audited.model, policy.requires, now=now, current=current),
        *(line for rule in policy.rule for line in judged(rule, audited, policy.requires.threats, references)),
    )
    words = {line.status for line in lines}
    return Verdict(
        policy=policy.name,
        policy_digest=loaded.digest,
        status="fail" if "fail" in words else "undecided" if "undecided" in words else "pass",
        sentence=_sentence(lines, policy),
        rules=lines,
    )


def _as_pinned(reference: Audited | str, requires: Requires) -> Audited | str:
    """A reference that read its images otherwise than the policy pins looks worse than it is, and is no reference."""
    if isinstance(reference, str) or requires.input_spec is None:
        return reference
    line = input_spec(requires.input_spec, reference.model.identity)
    if line.status == "pass":
        return reference
    return (
        f"{printable(reference.label)} was audited with another input specification: {line.measured}, and {line.because}; "
        'audit it as pinned, or pin as "any" what may differ'
    )


def _sentence(lines: tuple[RuleOutcome, ...], policy: Policy) -> str:
    total = len(lines)
    failed, undecided = (sum(line.status == status for line in lines) for status in ("fail", "undecided"))
    parts = []
    if failed:
        parts.append(f"{failed} of {total} requirements {'fails' if failed == 1 else 'fail'}")
    if undecided:
        many = f"{undecided} {'is' if undecided == 1 else 'are'} undecided"
        parts.append(many if failed else f"{undecided} of {total} requirements {'is' if undecided == 1 else 'are'} undecided")
    return (", ".join(parts) or f"all {total} requirements are met") + _not_pinned(policy)


def _not_pinned(policy: Policy) -> str:
    names = policy.requires.opted_out
    return f"; not pinned: {', '.join(names)}" if names else ""
