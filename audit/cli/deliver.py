"""An audit from request to delivery: run it, render and log its folder, say where everything is, choose the exit code."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from audit.cli.output import json_only, say
from audit.cli.progress import listener
from audit.errors import AuditError
from audit.text import printable

if TYPE_CHECKING:
    from audit.pipeline import AuditRequest, AuditRun
    from audit.result import AuditResult, ModelResult


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Where the sinks put a result, and what they had to say."""

    files: tuple[Path, ...]
    runs: dict[str, str]
    problems: tuple[str, ...]
    sink_failed: bool


def deliver(request: AuditRequest, *, experiment: str | None, log_to_mlflow: bool, mode: str, gated: bool, pdf: bool = True) -> int:
    """Run an audit and its sinks; returns the exit code. `mode` is "text", "quiet" or "json"."""
    with json_only(mode == "json") as stdout:
        return _deliver(request, experiment, log_to_mlflow=log_to_mlflow, pdf=pdf, mode=mode, gated=gated, stdout=stdout)


def _deliver(
    request: AuditRequest, experiment: str | None, *, log_to_mlflow: bool, pdf: bool, mode: str, gated: bool, stdout: TextIO
) -> int:
    from audit.engine.journal import is_unfinished
    from audit.pipeline import run_audit
    from audit.sinks.mlflow_server import push_command

    if mode == "text":
        threats = ", ".join(threat.label for threat in request.settings.threats)
        say(
            f"Threat {threats}; profile {request.settings.profile.name}; at most {request.settings.sample_size} examples.", err=True
        )
    try:
        with listener(mode, stdout) as listen:
            run = run_audit(request, listen)
    except KeyboardInterrupt:
        if not is_unfinished(request.out):
            raise
        say(f"Interrupted; the same command with --resume --out {_quoted(request.out)} goes on where it stopped.", err=True)
        return 130
    folder = _quoted(run.written.path)
    if run.interrupted:
        say(f"Interrupted; what was measured is in {folder}. Go on with --resume, or render it: audit report {folder}", err=True)
        return 130
    try:
        delivery = to_sinks(run.written.path, request, experiment, log_to_mlflow=log_to_mlflow, pdf=pdf)
    except KeyboardInterrupt:
        finish = f"audit report {folder}"
        if log_to_mlflow:
            finish += f", then {push_command(run.written.path, request.tracking_uri, experiment)}"
        say(f"Interrupted; the whole result is in {folder}. Finish with: {finish}", err=True)
        return 130
    problems = (
        *((f"{run.written.misplaced}: the result is in {run.written.path}",) if run.written.misplaced else ()),
        *delivery.problems,
    )
    if mode == "json":
        say(json.dumps({"event": "done", **_summary(run, delivery, problems)}), file=stdout)
    else:
        _tell(run.result, delivery)
        for problem in problems:
            say(f"Warning: {problem}", err=True)
    return _exit_code(run, gated=gated, sink_failed=delivery.sink_failed or run.written.misplaced is not None)


def to_sinks(folder: Path, request: AuditRequest, experiment: str | None, *, log_to_mlflow: bool, pdf: bool = True) -> Delivery:
    """Render the report, then log the folder; what one sink cannot do never keeps the other from trying."""
    from audit.result import RESULT_FILE, TABLE_FILE
    from audit.sinks import mlflow_run, report

    files = [folder / RESULT_FILE, folder / TABLE_FILE]
    problems: list[str] = []
    runs: dict[str, str] = {}
    failed = False
    try:
        rendered = report.render(folder, pdf=pdf)
        files += [path for path in (rendered.html, rendered.pdf) if path is not None]
        problems += [rendered.pdf_problem] if rendered.pdf_problem else []
    except Exception as error:  # a page that cannot be drawn must not keep the numbers out of MLflow
        problems.append(_sentence("the report was not rendered", error))
        failed = True
    if log_to_mlflow:
        try:
            logged = mlflow_run.log(
                folder, tracking_uri=request.tracking_uri, registry_uri=request.registry_uri, experiment=experiment
            )
            runs = {"parent": logged.parent_run_id, "experiment": logged.experiment_name, "open": logged.open_hint}
            problems += logged.notes
        except AuditError as error:
            problems.append(str(error))
            failed = True
    return Delivery(files=tuple(files), runs=runs, problems=tuple(problems), sink_failed=failed)


def _sentence(what: str, error: Exception) -> str:
    return str(error) if isinstance(error, AuditError) else f"{what}: {type(error).__name__}: {printable(str(error))}"


def _quoted(path: Path) -> str:
    return shlex.quote(printable(str(path), 4096))


def _exit_code(run: AuditRun, *, gated: bool, sink_failed: bool) -> int:
    broken = any(record.outcome.kind == "failed" for model in run.result.models for record in model.metrics)
    refused = gated and any(model.verdict is not None and model.verdict.status != "pass" for model in run.result.subjects)
    if broken or refused:
        return 1
    return 3 if sink_failed else 0


def overall_words(model: ModelResult) -> str:
    """The overall score as a reader must take it.

    An unmeasured dimension makes it an upper bound.
    """
    if model.overall.value is None:
        return "undetermined"
    value = f"{model.overall.value:.0f} ({model.overall.weakest})"
    return f"at most {value}" if model.overall.undetermined else value


def _summary(run: AuditRun, delivery: Delivery, problems: tuple[str, ...]) -> dict[str, object]:
    return {
        "result_id": run.result.id,
        "folder": str(run.written.path),
        "files": [str(path) for path in delivery.files],
        "mlflow": delivery.runs,
        "problems": list(problems),
        "cautions": list(run.result.data.cautions),
        "models": [
            {
                "model": model.identity.label,
                "verdict": model.verdict.status if model.verdict else None,
                "overall": model.overall.value,
                "undetermined": list(model.overall.undetermined),
                "cautions": list(model.identity.cautions),
                "checks_raised": [check.number for check in model.checks if check.status == "warn"],
            }
            for model in run.result.models
        ],
    }


def _tell(result: AuditResult, delivery: Delivery) -> None:
    from audit.result import Failed

    for model in result.models:
        verdict = model.verdict
        role = "reference" if model.is_reference else (verdict.status.upper() if verdict else "")
        words = f", policy {verdict.policy}: {verdict.sentence}" if verdict else ""
        say(f"{printable(model.identity.label)}: {role}{printable(words)}; overall score {overall_words(model)}")
        raised = [f"{check.number} ({check.found})" for check in model.checks if check.status == "warn"]
        if raised:
            say(f"  honesty checks raised: {printable('; '.join(raised), 400)}")
        for error in dict.fromkeys(record.outcome.error for record in model.metrics if isinstance(record.outcome, Failed)):
            say(f"  failed: {printable(error)}")
        for caution in model.identity.cautions:
            say(f"  caution: {printable(caution, 400)}")
        for rule in verdict.rules if verdict is not None and not model.is_reference else ():
            if rule.status != "pass":
                words = f"{rule.status}: {rule.requirement} {rule.required}, measured {rule.measured}: {rule.because}"
                say(f"  {printable(words)}")
    for caution in result.data.cautions:
        say(f"data: caution: {printable(caution, 400)}")
    for ranking in result.rankings:
        places = [
            f"{row.rank_low if row.rank_low == row.rank_high else f'{row.rank_low} to {row.rank_high}'}: "
            f"{printable(result.models[row.model].identity.label)} {100 * row.value:.1f} %"
            for row in ranking.rows
        ]
        say(f"{ranking.dimension}, n = {ranking.samples}:  " + (";  ".join(places) or "fewer than two models to rank"))
        for missing in ranking.left_out:
            say(f"  not ranked: {printable(result.models[missing.model].identity.label)}, because {printable(missing.because)}")
    for path in delivery.files:
        say(str(path))
    if delivery.runs:
        say(f"MLflow run {delivery.runs['parent']} in experiment {printable(delivery.runs['experiment'])}")
        say(printable(delivery.runs["open"]))
