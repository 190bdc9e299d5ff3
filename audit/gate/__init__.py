"""A policy judges an audited model: one line per pin and per rule, and it passes only on measured values.

Pure: it reads a result and its per-example columns, and what its caller found out: what the gated model is now, the audits that
rules compare with, and the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from audit.audited import Audited
from audit.gate.pins import CurrentModel, pins
from audit.gate.rules import judged
from audit.policy import LoadedPolicy, Policy
from audit.result import RuleOutcome, Verdict

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
