"""Page one as data: who, the verdict, scores weakest first; worries and steps come from report_advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from audit.result import AuditResult, Measured, ModelResult, OverallScore, ScoreRecord
from audit.sinks import report_words as words
from audit.sinks.report_advice import CHECK, Status, Worry, dimension_name, steps_of, worries_of
from audit.sinks.report_words import Missing

# More would not fit on one sheet; the rest is counted and named.
SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A label and a value; `mono` for digests and identifiers."""

    label: str
    value: str
    mono: bool = False


@dataclass(frozen=True, kw_only=True)
class ScoreCell:
    """One model's score in one dimension; either `score` and the bar's numbers, or why it is missing.

    `limit` is where the policy's bound stands, None where it has none for this score.
    """

    label: str
    subject: bool
    score: str | None
    value: float
    low: float | None
    high: float | None
    interval: str | None
    missing: Missing | None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """One row of the scores; `cells` follow the order of the models."""

    name: str
    means: str
    cells: tuple[ScoreCell, ...]

    @property
    def missing_everywhere(self) -> Missing | None:
        """The one reason why no model has this score, or None."""
        reasons = {cell.missing for cell in self.cells}
        return next(iter(reasons)) if len(reasons) == 1 else None


@dataclass(frozen=True, kw_only=True)
class VerdictLine:
    """One audited model's verdict, and its overall score in words."""

    label: str
    name: str
    status: Status
    sentence: str
    overall: str
    overall_short: str
    weakest: str | None


@dataclass(frozen=True, kw_only=True)
class Front:
    """All of page one. `layout`: one subject, few models (bars side by side), or many (one line per model).

    `more_checks` names the raised checks among the worries that are not shown.
    """

    title: str
    layout: Literal["one", "few", "many"]
    run_label: str
    facts: tuple[Fact, ...]
    verdicts: tuple[VerdictLine, ...]
    dimensions: tuple[Dimension, ...]
    worries: tuple[Worry, ...]
    more_worries: int
    more_sections: tuple[str, ...]
    more_checks: str
    steps: tuple[str, ...]
    more_steps: int

    @property
    def has_limits(self) -> bool:
        """Whether a bar shows a bound of the policy."""
        return any(cell.limit is not None for dimension in self.dimensions for cell in dimension.cells)


def front(result: AuditResult, labels: Sequence[str]) -> Front:
    """Page one of a result; `labels` are the models' short names."""
    subjects = [(model, label) for model, label in zip(result.models, labels, strict=True) if not model.is_reference]
    verdicts = tuple(_verdict(model, label) for model, label in subjects)
    worries = worries_of(subjects, result)
    steps = steps_of(subjects, result)
    hidden = worries[SHOWN:]
    return Front(
        title=_title(subjects),
        layout="one" if len(subjects) == 1 and len(result.models) <= 3 else "few" if len(result.models) <= 3 else "many",
        run_label=_run_label(verdicts),
        facts=_facts(result, labels),
        verdicts=verdicts,
        dimensions=_dimensions(result, labels),
        worries=tuple(worries[:SHOWN]),
        more_worries=len(hidden),
        more_sections=tuple(sorted({worry.section for worry in hidden}, key=int)),
        more_checks=words.listed([worry.title.lower() for worry in hidden if worry.title.startswith(CHECK)]),
        steps=tuple(steps[:SHOWN]),
        more_steps=max(0, len(steps) - SHOWN),
    )


def _title(subjects: Sequence[tuple[ModelResult, str]]) -> str:
    identities = [model.identity for model, _ in subjects]
    names = list(dict.fromkeys(words.clipped(identity.name, 60) for identity in identities))
    versions = [identity.version for identity in identities]
    if len(names) == 1 and len(identities) > 1 and all(versions):
        shown = words.listed([words.clipped(str(version), 12) for version in versions])
        return f"{names[0]}, versions{words.NO_BREAK}{shown}" if len(versions) <= 4 else f"{names[0]}, {len(versions)} versions"
    full = [words.clipped(identity.label, 70) for identity in identities]
    return words.listed(full) if len(full) <= 2 else f"{full[0]} and {len(full) - 1} other models"


def _run_label(verdicts: Sequence[VerdictLine]) -> str:
    if len(verdicts) == 1:
        return f"Verdict: {_word(verdicts[0].status)}"
    statuses = [_word(verdict.status) for verdict in verdicts]
    return "Verdicts: " + ", ".join(f"{statuses.count(word)} {word}" for word in dict.fromkeys(statuses))


def _word(status: str) -> str:
    return {"none": "NOT JUDGED", "not_run": "NOT RUN"}.get(status, status.upper())


def _facts(result: AuditResult, labels: Sequence[str]) -> tuple[Fact, ...]:
    facts = [
        Fact(label="Audited", value=words.day(result.created)),
        Fact(label="Data", value=f"{words.clipped(result.data.source, 60)}, {words.counted(result.data.samples, 'image')}"),
    ]
    facts += [
        Fact(label="Compared with", value=label) for model, label in zip(result.models, labels, strict=True) if model.is_reference
    ]
    if len(result.subjects) <= 3:
        facts += [
            Fact(
                label="Weights" if len(result.subjects) == 1 else f"Weights of {label}", value=model.identity.digest[:12], mono=True
            )
            for model, label in zip(result.models, labels, strict=True)
            if not model.is_reference
        ]
    facts.append(Fact(label="Tool", value=f"mlflow-audit {result.manifest.tool_version}"))
    return tuple(facts)


def _verdict(model: ModelResult, label: str) -> VerdictLine:
    overall, short = _overall(model.overall)
    verdict = model.verdict
    meets = {"pass": "meets", "fail": "does not meet", "undecided": "is not shown to meet"}
    return VerdictLine(
        label=label,
        name=words.clipped(model.identity.label, 70),
        status="none" if verdict is None else verdict.status,
        sentence="No policy was given, so nothing was judged: read the scores and the worries below."
        if verdict is None
        else words.clipped(
            f"{words.opening(label)} {meets[verdict.status]} the policy {words.clipped(verdict.policy, 40)}: "
            f"{words.clause(verdict.sentence)}.",
            260,
        ),
        overall=overall,
        overall_short=short,
        weakest=model.overall.weakest,
    )


def _overall(overall: OverallScore) -> tuple[str, str]:
    undetermined = words.listed([dimension_name(name).lower() for name in overall.undetermined])
    if overall.value is None:
        return "undetermined, because no dimension was measured", "undetermined"
    score = words.fixed(overall.value, 0)
    if not overall.undetermined:
        return score, score
    verb = "was" if len(overall.undetermined) == 1 else "were"
    return f"at most {score}, undetermined, because {undetermined} {verb} not measured", f"at most {score}"


def _dimensions(result: AuditResult, labels: Sequence[str]) -> tuple[Dimension, ...]:
    """Weakest first by the lowest score of an audited model; dimensions nobody measured come last, with their reason."""
    names = list(dict.fromkeys((score.dimension, score.threat) for model in result.models for score in model.scores))
    rows: list[tuple[float, Dimension]] = []
    for dimension, threat in names:
        cells, lowest, means = [], float("inf"), ""
        for model, label in zip(result.models, labels, strict=True):
            score = next((item for item in model.scores if (item.dimension, item.threat) == (dimension, threat)), None)
            cells.append(_score_cell(score, model, label))
            if score is not None:
                means = means or score.means
                if isinstance(score.outcome, Measured) and not model.is_reference:
                    lowest = min(lowest, score.outcome.value)
        label_of_threat = None if threat is None else words.threat_label(threat)
        if label_of_threat and label_of_threat not in means and label_of_threat.replace(words.NO_BREAK, " ") not in means:
            means = f"{means}, {label_of_threat}"
        rows.append((lowest, Dimension(name=dimension_name(dimension), means=words.clipped(means, 110), cells=tuple(cells))))
    return tuple(row for _, row in sorted(rows, key=lambda item: item[0]))


def _limit(score: ScoreRecord, model: ModelResult) -> float | None:
    """Where the policy's bound on this score stands on the bar."""
    rules = () if model.verdict is None else model.verdict.rules
    return next((min(100.0, max(0.0, rule.limit)) for rule in rules if rule.key == score.key and rule.limit is not None), None)


def _score_cell(score: ScoreRecord | None, model: ModelResult, label: str) -> ScoreCell:
    subject = not model.is_reference
    outcome = None if score is None else score.outcome
    if score is not None and isinstance(outcome, Measured):
        interval = outcome.interval
        return ScoreCell(
            label=label, subject=subject, score=words.fixed(outcome.value, 0), value=min(100.0, max(0.0, outcome.value)),
            low=None if interval is None else max(0.0, interval.low), high=None if interval is None else min(100.0, interval.high),
            interval=words.score_interval(interval), missing=None, limit=_limit(score, model),
        )  # fmt: skip
    reason = Missing(kind="Not measured", because="this audit has no such score for this model")
    if outcome is not None:
        reason = words.missing(outcome) or reason
    return ScoreCell(label=label, subject=subject, score=None, value=0, low=None, high=None, interval=None, missing=reason)
