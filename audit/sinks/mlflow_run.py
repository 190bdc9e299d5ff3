"""A result folder -> MLflow: one run per audit, one child run per model, tags on the registered versions.

Logging is idempotent by `audit.result_id`. A run with `audit.complete` is left alone. A half run (the upload was killed) is
finished, not replaced: a deleted run would leave its values behind on the logged models. Every call can be repeated on the same
run, since values carry the audit's own timestamp and files overwrite themselves. Surplus half runs are deleted at the end.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from audit.environment import defaults
from audit.errors import SinkError
from audit.records.folder import read_folder
from audit.result import FAILURES_FOLDER, RESULT_FILE, TABLE_FILE, AuditResult
from audit.sinks import mlflow_content as content
from audit.sinks.mlflow_server import (
    DEFAULT_EXPERIMENT,
    FIRST_CONTACT,
    GONE,
    WHILE_LOGGING,
    cause,
    open_hint,
    push_command,
    shown_address,
)
from audit.sinks.mlflow_verdict import tag_audited
from audit.text import printable, redact

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Run

FILES = (RESULT_FILE, "report.html", "report.pdf", TABLE_FILE)
# MLflow takes 1000 metrics in a call, but its SQL store stumbles when more than 100 that it already has come again (3.17).
BATCH = 100


@dataclass(frozen=True, kw_only=True)
class LoggedRuns:
    """Where a result is in MLflow. `child_run_ids` follow the result's models; `notes` say what could not be attached, and why."""

    parent_run_id: str
    child_run_ids: tuple[str, ...]
    experiment_id: str
    experiment_name: str
    tracking_uri: str
    open_hint: str
    was_complete: bool = False
    notes: tuple[str, ...] = ()


def log(folder: Path, *, tracking_uri: str | None, registry_uri: str | None = None, experiment: str | None) -> LoggedRuns:
    """Log the result in `folder`; needs neither the models nor the data, and may be called again at any time.

    Args:
        folder: a result folder; what it holds beyond the result and its reports is not uploaded.
        tracking_uri: None means MLflow's own setting.
        registry_uri: None means MLflow's own setting.
        experiment: created when missing; "audit" when None. A result that is in MLflow already stays where it is.

    Raises:
        InputError: the folder holds no readable result.
        SinkError: MLflow did not take everything; the same call finishes it later.
    """
    result = read_folder(folder)
    uri = "its default store" if tracking_uri is None else shown_address(tracking_uri)
    try:
        with defaults(FIRST_CONTACT):
            client, uri = _connect(tracking_uri, registry_uri)
        with defaults(WHILE_LOGGING):
            return _log(client, folder, result, uri, experiment or DEFAULT_EXPERIMENT)
    except Exception as error:  # stores and artifact clients raise whatever their own libraries raise
        raise SinkError(
            f"MLflow at {uri} did not take the whole result: {cause(error)}; the result is on disk in "
            f"{shlex.quote(str(folder))}, and `{push_command(folder, tracking_uri, experiment)}` finishes it"
        ) from error


def check_store(tracking_uri: str | None) -> str:
    """What is at the tracking address, in words; makes nothing.

    Raises:
        SinkError: it does not answer, or refuses.
    """
    import mlflow

    address = tracking_uri or mlflow.get_tracking_uri()
    database = Path(address.removeprefix("sqlite:///").partition("?")[0])
    if address.startswith("sqlite:///") and not database.exists():
        if not os.access(database.parent, os.W_OK):
            raise SinkError(f"{shown_address(address)} does not exist, and its folder cannot be written to; choose another place")
        return f"{shown_address(address)} does not exist yet; the first audit makes it"
    try:
        with defaults(FIRST_CONTACT):
            _, shown = _connect(tracking_uri, None)
    except Exception as error:
        raise SinkError(f"MLflow at {shown_address(address)} cannot be used: {cause(error)}") from error
    return f"{shown} answers"


def _connect(tracking_uri: str | None, registry_uri: str | None) -> tuple[MlflowClient, str]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=tracking_uri, registry_uri=registry_uri)
    client.search_experiments(max_results=1)
    return client, shown_address(client.tracking_uri)


def _log(client: MlflowClient, folder: Path, result: AuditResult, uri: str, experiment: str) -> LoggedRuns:
    parents, children = _found(client, result.id)
    parent = next((run for run in parents if content.COMPLETE in run.data.tags), next(iter(parents), None))
    experiment_id = _experiment(client, experiment) if parent is None else parent.info.experiment_id
    started = content.milliseconds(result)
    if parent is None:
        parent_content = content.parent_content(result)
        parent = client.create_run(experiment_id, started, _context_tags({content.RESULT_ID: result.id}), parent_content.name)
    parent_id = parent.info.run_id
    logged = LoggedRuns(
        parent_run_id=parent_id,
        child_run_ids=_ids(children, parent_id),
        experiment_id=experiment_id,
        experiment_name=client.get_experiment(experiment_id).name,
        tracking_uri=uri,
        open_hint=open_hint(uri, experiment_id, parent_id),
    )
    if content.COMPLETE in parent.data.tags:
        return replace(logged, was_complete=True)
    return _fill(client, folder, result, parent, children, logged)


def _fill(
    client: MlflowClient, folder: Path, result: AuditResult, parent: Run, children: Sequence[Run], logged: LoggedRuns
) -> LoggedRuns:
    """Bring the parent and its children from whatever state they are in to complete."""
    parent_id, started = parent.info.run_id, content.milliseconds(result)
    known = {
        run.data.tags.get(content.MODEL_INDEX): run for run in reversed(children) if run.data.tags.get(content.PARENT) == parent_id
    }
    ids: list[str] = []
    notes: list[str] = []
    for index, model in enumerate(result.models):
        run = known.get(str(index)) or _create_child(client, parent, result, index)
        ids.append(run.info.run_id)
        notes += _fill_child(client, run, result, index)
        client.set_terminated(run.info.run_id, end_time=started + int(model.seconds * 1000))
    _log_values(client, parent, content.parent_content(result), result, model_id=None)
    client.log_inputs(parent_id, datasets=[_dataset(result)])
    for name in FILES:
        if (folder / name).is_file():
            client.log_artifact(parent_id, str(folder / name))
    if (folder / FAILURES_FOLDER).is_dir():
        client.log_artifacts(parent_id, str(folder / FAILURES_FOLDER), FAILURES_FOLDER)
    for model in result.subjects:
        notes += tag_audited(client, result, model, parent_id)
    client.set_terminated(parent_id, end_time=started + int(sum(model.seconds for model in result.models) * 1000))
    _delete_surplus(client, result.id, keep={parent_id, *ids})
    client.set_tag(parent_id, content.COMPLETE, "true")
    return replace(logged, child_run_ids=tuple(ids), notes=tuple(notes))


def _found(client: MlflowClient, result_id: str) -> tuple[list[Run], list[Run]]:
    """All runs of this result in any experiment: parents (those with most children first) and children."""
    page = client.search_experiments()
    experiments = [found.experiment_id for found in page]
    while page.token:
        page = client.search_experiments(page_token=page.token)
        experiments += [found.experiment_id for found in page]
    query = f"tags.`{content.RESULT_ID}` = '{result_id}'"
    runs: list[Run] = []
    for start in range(0, len(experiments), BATCH):
        runs += client.search_runs(experiments[start : start + BATCH], query, max_results=1000)
    children = sorted((run for run in runs if content.PARENT in run.data.tags), key=lambda run: str(run.info.run_id))
    counts = [run.data.tags[content.PARENT] for run in children]
    parents = [run for run in runs if content.PARENT not in run.data.tags]
    return sorted(parents, key=lambda run: (-counts.count(run.info.run_id), run.info.run_id)), children


def _ids(children: Sequence[Run], parent_id: str) -> tuple[str, ...]:
    own = [run for run in children if run.data.tags[content.PARENT] == parent_id]
    return tuple(run.info.run_id for run in sorted(own, key=lambda run: int(run.data.tags.get(content.MODEL_INDEX, "0"))))


def _experiment(client: MlflowClient, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        return client.create_experiment(name)
    if found.lifecycle_stage != "active":
        raise SinkError(f"its experiment {printable(name)!r} is in the trash; restore it, or give another name with --experiment")
    return str(found.experiment_id)


def _context_tags(tags: dict[str, str]) -> dict[str, str]:
    """The tags that MLflow gives to every run (user, source), and `tags`."""
    from mlflow.tracking.context.registry import resolve_tags

    return {key: redact(str(value)) for key, value in resolve_tags(tags).items()}


def _create_child(client: MlflowClient, parent: Run, result: AuditResult, index: int) -> Run:
    identifying = {content.PARENT: parent.info.run_id, content.RESULT_ID: result.id, content.MODEL_INDEX: str(index)}
    name = content.model_content(result, index).name
    return client.create_run(parent.info.experiment_id, content.milliseconds(result), _context_tags(identifying), name)


def _fill_child(client: MlflowClient, run: Run, result: AuditResult, index: int) -> list[str]:
    from mlflow.entities import LoggedModelInput

    values = content.model_content(result, index)
    model_id, notes = _known_model(client, result.models[index].identity.model_id)
    models = [LoggedModelInput(model_id)] if model_id else None
    client.log_inputs(run.info.run_id, datasets=[_dataset(result)], models=models)
    _log_values(client, run, values, result, model_id=model_id)
    client.log_text(run.info.run_id, json.dumps(values.table, allow_nan=False, ensure_ascii=False), content.TABLE)
    return notes


def _known_model(client: MlflowClient, model_id: str | None) -> tuple[str | None, list[str]]:
    """The logged model, if this store has it: a foreign id would break the store's own references."""
    from mlflow.exceptions import MlflowException

    if model_id is None:
        return None, []
    try:
        client.get_logged_model(model_id)
    except MlflowException as error:
        if error.error_code not in GONE:
            raise
        return None, [f"the tracking store does not hold model {printable(model_id)}, so its metrics are not linked to it"]
    return model_id, []


def _log_values(client: MlflowClient, run: Run, values: content.RunContent, result: AuditResult, *, model_id: str | None) -> None:
    from mlflow.entities import Metric, Param, RunTag

    name, digest, time = content.dataset_name(result), content.short_digest(result.data.digest), content.milliseconds(result)
    metrics = [
        Metric(key, value, time, 0, model_id=model_id, dataset_name=name, dataset_digest=digest)
        for key, value in values.metrics.items()
    ]
    # MLflow refuses a second value for a param, and another version of this tool may have spelled the first.
    params = [Param(key, value) for key, value in values.params.items() if key not in run.data.params]
    tags = [RunTag(key, value) for key, value in values.tags.items()]
    for start in range(0, max(len(metrics), len(params), len(tags)), BATCH):
        batch = slice(start, start + BATCH)
        client.log_batch(run.info.run_id, metrics[batch], params[batch], tags[batch], synchronous=True)


def _dataset(result: AuditResult) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    data = result.data
    source = {"tags": {"reference": redact(data.reference), "source": redact(data.source), "sha256": data.digest}}
    profile = {"num_rows": data.samples, "total_rows": data.total, "sampling": data.sampling, "sample_sha256": data.sample_digest}
    dataset = Dataset(
        name=content.dataset_name(result),
        digest=content.short_digest(data.digest),
        source_type="code",
        source=json.dumps(source),
        profile=json.dumps(profile),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "evaluation")])


def _delete_surplus(client: MlflowClient, result_id: str, *, keep: set[str]) -> None:
    """Half runs of the same result that a repeated request or a second upload left."""
    parents, children = _found(client, result_id)
    for run in (*parents, *children):
        if run.info.run_id not in keep:
            client.delete_run(run.info.run_id)
