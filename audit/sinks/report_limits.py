"""Section 3 as data: intended use, who the attacker is assumed to be, and what was not done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit.result import AuditResult, Cascade, Measured
from audit.sinks import report_words as words

# NIST AI 100-2e2025: knowledge of the attacker, and capabilities at the deployment stage.
_KNOWLEDGE = {
    "white-box": "White-box: architecture, parameters and gradients",
    "black-box": "Black-box: query access to the outputs, no gradients",
}
_CAPABILITY = {
    "white-box": "Testing data control: each image may change within {ball}; model access for reading",
    "black-box": "Testing data control: each image may change within {ball}; query access",
}
_ALWAYS = (
    "No adaptive attack was performed: no attack was designed against a defence that this model may have.",
    "Poisoning, backdoors, privacy and model extraction were not examined: this audit covers evasion at deployment only.",
    "An attack that fails proves nothing about attacks that were not tried: accuracy under attack is an upper bound on the truth.",
)


@dataclass(frozen=True, kw_only=True)
class Survival:
    """How many images of one model survived, in words."""

    label: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ThreatRow:
    """One assumed attacker: an arm of attacks at one threat."""

    name: str
    goal: str
    knowledge: str
    capability: str
    attacks: str
    survived: tuple[Survival, ...]


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Something this audit did not do for some models, and why."""

    what: str
    models: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the registry says about one model."""

    label: str
    description: str
    tags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All of section 3."""

    uses: tuple[Use, ...]
    threats: tuple[ThreatRow, ...]
    not_done: tuple[str, ...]
    not_run: tuple[NotRun, ...]


def limits(result: AuditResult, labels: Sequence[str]) -> Limits:
    """Section 3 of a result; `labels` are the models' short names."""
    return Limits(
        uses=tuple(
            Use(
                label=label,
                description=words.clipped(model.identity.description or "", 1500),
                tags=tuple(sorted(model.identity.tags.items())),
            )
            for model, label in zip(result.models, labels, strict=True)
        ),
        threats=_threats(result, labels),
        not_done=_not_done(result),
        not_run=_not_run(result, labels),
    )


def _threats(result: AuditResult, labels: Sequence[str]) -> tuple[ThreatRow, ...]:
    grouped: dict[tuple[str, str], list[tuple[str, Cascade]]] = {}
    for model, label in zip(result.models, labels, strict=True):
        for cascade in model.cascades:
            grouped.setdefault((cascade.threat, cascade.arm), []).append((label, cascade))
    rows = []
    for (threat, arm), cascades in grouped.items():
        ball = words.threat_label(threat)
        attacks = dict.fromkeys(stage.attack for _, cascade in cascades for stage in cascade.stages)
        rows.append(
            ThreatRow(
                name=f"{arm[:1].upper()}{arm[1:]}, {ball}",
                goal="Integrity violation: untargeted evasion",
                knowledge=_KNOWLEDGE.get(arm, arm),
                capability=_CAPABILITY.get(arm, "Testing data control within {ball}").format(ball=ball),
                attacks=words.listed(list(attacks)) or "none",
                survived=tuple(
                    Survival(label=label, text=f"{cascade.survivors} of {cascade.samples}") for label, cascade in cascades
                ),
            )
        )
    return tuple(rows)


def _not_done(result: AuditResult) -> tuple[str, ...]:
    lines = list(_ALWAYS)
    lines.append(
        "Certificates hold for the smoothed classifier alone: no number in this report is a guarantee for the deployed model."
        if certified(result)
        else "Nothing was certified: no number in this report is a guarantee."
    )
    data = result.data
    sample = f"{words.grouped(data.samples)} of {words.counted(data.total, 'image')} of one data set"
    lines.append(f"{sample} were examined; images from elsewhere may behave differently.")
    if not result.images_kept:
        lines.append("Example images were left out of all outputs on request; section 7 names the failures without showing them.")
    return tuple(lines)


def certified(result: AuditResult) -> bool:
    """Whether any model has a certified value."""
    return any(
        model.certified is not None
        or any(record.id.startswith("certified") and isinstance(record.outcome, Measured) for record in model.metrics)
        for model in result.models
    )


def _not_run(result: AuditResult, labels: Sequence[str]) -> tuple[NotRun, ...]:
    """Arms and evidence that were skipped, and dimensions without a value, the same reason of several models once."""
    found: dict[tuple[str, str], list[str]] = {}
    for model, label in zip(result.models, labels, strict=True):
        for what, because in model.skipped.items():
            found.setdefault((words.readable(what), words.clause(because)), []).append(label)
        for score in model.scores:
            reason = words.missing(score.outcome)
            if reason is not None:
                found.setdefault((f"score: {score.dimension}", reason.because), []).append(label)
    return tuple(
        NotRun(
            what=what[:1].upper() + what[1:],
            models="all models" if len(names) == len(labels) and len(labels) > 1 else words.listed(names),
            because=because,
        )
        for (what, because), names in found.items()
    )
