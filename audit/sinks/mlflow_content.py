"""What a result becomes in MLflow: names, tags, params, metrics and a table, as plain values. Knows no server.

| run | holds |
|---|---|
| one parent per audit | params, data set, the output files, `audit.result_id`, `audit.verdict`, `audit.complete` (set last) |
| one child per model | all measured values under their keys, the same for every version, so that MLflow's charts show the trend |
| | `score/<dimension>`, one per threat where it has one: `score/<dimension>/<threat>` |
| | `audit.model` and `audit.model_version`, to filter and group MLflow's run table by |
| | `metrics.json`: a table of all values with their intervals, and of the reasons why others are missing |

Bounds of intervals are in that table only: as metrics they made two of every three charts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from audit.result import AuditResult, CheckRecord, Failed, Measured, MetricRecord, ModelResult, OverallScore
from audit.text import printable, redact

RESULT_ID = "audit.result_id"
COMPLETE = "audit.complete"
MODEL_INDEX = "audit.model_index"
MODEL, MODEL_VERSION = "audit.model", "audit.model_version"
RUN_ID = "audit.run_id"
PARENT = "mlflow.parentRunId"
VERDICT = "audit.verdict"
CHECKS = "audit.checks"
POLICY = "audit.policy"
POLICY_SHA256 = "audit.policy_sha256"
GATE_DATE = "audit.gate_date"
GATE_RESULT_ID = "audit.gate_result_id"
TABLE = "metrics.json"

# The strictest limits among MLflow's stores, old and new; a digest may have 36 characters, but columns show it whole.
KEY_LENGTH, PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 250, 500, 5000, 16
_ILLEGAL = re.compile(r"[^A-Za-z0-9_\-. :/]")
_COLUMNS = ("metric", "value", "ci_low", "ci_high", "n", "unit", "better", "outcome", "because")


@dataclass(frozen=True, kw_only=True)
class RunContent:
    """Everything that one run receives as values; `table` is None on the parent."""

    name: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float] = field(default_factory=dict)
    table: dict[str, list[object]] | None = None


def legal_key(text: str) -> str:
    """`text` as a key that every MLflow store takes; the audit's own keys come back unchanged.

    >>> legal_key("adversarial_accuracy_white_box/linf_8-255"), legal_key("/a//b=1%/../c/")
    ('adversarial_accuracy_white_box/linf_8-255', 'a/b_1_/c')
    """
    parts = [part for part in _ILLEGAL.sub("_", text).split("/") if part not in {"", ".", ".."}]
    return "/".join(parts)[:KEY_LENGTH].rstrip("/.") or "_"


def legal_keys(texts: Iterable[str]) -> dict[str, str]:
    """A legal key for every text; texts whose keys differ at most in case get `_2`, `_3`, ..., since some stores fold case."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for text in texts:
        key = legal_key(text)
        stem, count = key, 1
        while key.casefold() in taken:
            count += 1
            key = f"{stem[: KEY_LENGTH - 5]}_{count}"
        taken.add(key.casefold())
        keys[text] = key
    return keys


def milliseconds(result: AuditResult) -> int:
    """When the audit was made, in ms since 1970: the timestamp of every metric, so that logging twice stores nothing twice."""
    return int(datetime.fromisoformat(result.created).timestamp() * 1000)


def dataset_name(result: AuditResult) -> str:
    """The last part of the data reference, as MLflow's data set name."""
    return printable(redact(result.data.reference).rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1], KEY_LENGTH) or "data"


def short_digest(digest: str) -> str:
    """The first characters of a sha256 as MLflow's data set digest; the data set's source holds all of it."""
    return digest.removeprefix("sha256:")[:DIGEST_LENGTH]


def parent_content(result: AuditResult) -> RunContent:
    """The run of the whole audit."""
    labels = [_line(model.identity.label, 120) for model in result.subjects]
    verdict = _common_verdict(result)
    raised = {check.number for model in result.models for check in model.checks if check.status == "warn"}
    incomplete = any(_failed(model) for model in result.models)
    tags = {
        RESULT_ID: result.id,
        "audit.schema_version": str(result.schema_version),
        "audit.status": "partly failed" if incomplete else "audited",
        VERDICT: verdict,
        "audit.date": result.created,
        "mlflow.note.content": f"Robustness audit, policy verdict: {verdict}. The report is under Artifacts: report.html. "
        "One child run per model holds the metrics.",
        CHECKS: _checks_in_words([check for model in result.models for check in model.checks]),
        **{f"audit.check.{number}": "warn" for number in sorted(raised)},
    }
    return RunContent(name=_line("audit of " + "; ".join(labels), KEY_LENGTH), tags=_tags(tags), params=_params(_settings(result)))


def model_content(result: AuditResult, index: int) -> RunContent:
    """The run of model number `index`."""
    model = result.models[index]
    identity = model.identity
    tags = {
        RESULT_ID: result.id,
        MODEL_INDEX: str(index),
        MODEL: identity.name,
        **({} if identity.version is None else {MODEL_VERSION: identity.version}),
        "audit.schema_version": str(result.schema_version),
        "audit.status": _status(model),
        VERDICT: _verdict(model),
        "audit.score": score_in_words(model.overall),
        "audit.date": result.created,
        "audit.role": "reference" if model.is_reference else "subject",
        CHECKS: _checks_in_words(model.checks),
        **{f"audit.check.{check.number}": "warn" for check in model.checks if check.status == "warn"},
        "mlflow.loggedArtifacts": f'[{{"path": "{TABLE}", "type": "table"}}]',
    }
    params = {
        "model": identity.label,
        "model_uri": identity.uri,
        "model_digest": identity.digest,
        "flavour": identity.flavour,
        "runtime": identity.runtime,
        **{f"input.{name}": value for name, value in identity.input_spec.items()},
        **_settings(result),
        "device": identity.device,
    }
    return RunContent(
        name=_line(identity.label, KEY_LENGTH),
        tags=_tags(tags),
        params=_params(params),
        metrics=_metrics(model),
        table=_table(model),
    )


def version_tags(result: AuditResult, model: ModelResult, run_id: str) -> dict[str, str]:
    """The tags of a registered model version; `audit.run_id` is the audit's parent run, which holds the report."""
    tags = {
        "audit.status": _status(model),
        RUN_ID: run_id,
        RESULT_ID: result.id,
        "audit.score": score_in_words(model.overall),
        "audit.date": result.created,
        VERDICT: _verdict(model),
    }
    if model.verdict is not None:
        tags |= {POLICY: model.verdict.policy, POLICY_SHA256: model.verdict.policy_digest}
    return _tags(tags)


def score_in_words(overall: OverallScore) -> str:
    """The overall score as a tag: a missing dimension never looks like robustness.

    >>> score_in_words(OverallScore(value=71.25, weakest="clean", undetermined=("adversarial",)))
    'at most 71.2, undetermined: adversarial'
    """
    if overall.value is None:
        return "undetermined"
    if overall.undetermined:
        return f"at most {overall.value:.1f}, undetermined: {', '.join(overall.undetermined)}"
    return f"{overall.value:.1f}"


def _checks_in_words(checks: Iterable[CheckRecord]) -> str:
    """Which honesty checks were raised, on any model."""
    raised = sorted({check.number for check in checks if check.status == "warn"})
    return f"raised: {', '.join(map(str, raised))}" if raised else "none raised"


def _metrics(model: ModelResult) -> dict[str, float]:
    values = {record.key: record.outcome.value for record in model.metrics if isinstance(record.outcome, Measured)}
    for score in model.scores:
        if isinstance(score.outcome, Measured):
            values[score.key] = score.outcome.value
    if model.overall.value is not None:
        # A chart cannot say "at most", so an undetermined overall score has another key.
        values["score/overall_at_most" if model.overall.undetermined else "score/overall"] = model.overall.value
    finite = {key: value for key, value in values.items() if math.isfinite(value)}
    keys = legal_keys(finite)
    return {keys[key]: float(value) for key, value in finite.items()}


def _table(model: ModelResult) -> dict[str, list[object]]:
    return {"columns": list(_COLUMNS), "data": [_table_row(record) for record in model.metrics]}


def _table_row(record: MetricRecord) -> list[object]:
    outcome = record.outcome
    head = [_line(record.key, KEY_LENGTH)]
    tail = [str(record.unit), record.better.value, outcome.kind]
    if isinstance(outcome, Measured):
        low, high = (outcome.interval.low, outcome.interval.high) if outcome.interval else (None, None)
        bounds = [bound if bound is not None and math.isfinite(bound) else None for bound in (low, high)]
        return [*head, outcome.value, *bounds, outcome.samples, *tail, _line(outcome.why_no_interval or "", TAG_LENGTH)]
    because = outcome.error if isinstance(outcome, Failed) else outcome.because
    return [*head, None, None, None, None, *tail, _line(because, TAG_LENGTH)]


def _settings(result: AuditResult) -> dict[str, str]:
    return {
        "profile": result.profile,
        "threats": ", ".join(result.threats),
        "samples": str(result.data.samples),
        "seed": str(result.data.seed),
        "data": result.data.reference,
        "data_digest": result.data.digest,
        "sample_digest": result.data.sample_digest,
        "tool_version": result.manifest.tool_version,
        **{f"settings.{name.replace(' ', '_')}": value for name, value in result.manifest.settings.items()},
        "device": result.manifest.device,
    }


def _failed(model: ModelResult) -> bool:
    return any(isinstance(record.outcome, Failed) for record in model.metrics)


def _status(model: ModelResult) -> str:
    return "partly failed" if _failed(model) else "audited"


def _verdict(model: ModelResult) -> str:
    return "no policy" if model.verdict is None else model.verdict.status


def _common_verdict(result: AuditResult) -> str:
    """The worst verdict among the audited models."""
    verdicts = {_verdict(model) for model in result.subjects}
    return next((word for word in ("fail", "undecided", "no policy", "pass") if word in verdicts), "no policy")


def _line(text: str, limit: int) -> str:
    return printable(redact(text), limit)


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {key: _line(value, TAG_LENGTH) for key, value in tags.items()}


def _params(params: Mapping[str, str]) -> dict[str, str]:
    keys = legal_keys(params)
    return {keys[name]: _line(value, PARAM_LENGTH) for name, value in params.items()}
