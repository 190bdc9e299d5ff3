"""Audits in MLflow, read only: a run or a registered version -> Audited. Nothing is written, in MLflow or on this machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from audit.audited import Audited, VersionRecord
from audit.environment import MLFLOW_PATIENCE, defaults, missing_store, name_filter
from audit.errors import AuditError, InputError
from audit.records.folder import audited_in
from audit.result import RESULT_FILE, TABLE_FILE
from audit.sinks.mlflow_content import COMPLETE, MODEL_INDEX, PARENT, RESULT_ID, RUN_ID, VERDICT
from audit.sinks.mlflow_server import GONE, cause, shown_address
from audit.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run
    from mlflow.entities.model_registry import ModelVersion

_PAGE = 200
_CHECK = "check the name, and --tracking-uri (MLFLOW_TRACKING_URI)"


@dataclass(frozen=True, kw_only=True)
class Store:
    """An MLflow store that is there; `tracking` and `registry` are its addresses as they may be shown."""

    client: MlflowClient
    tracking: str
    registry: str


@contextmanager
def opened(tracking_uri: str | None, registry_uri: str | None) -> Iterator[Store]:
    """A store to read from; whatever MLflow raises inside becomes one sentence.

    Raises:
        InputError: there is no store, it does not answer or refuses access, or what was asked for is not in it.
    """
    import mlflow

    tracking = tracking_uri or mlflow.get_tracking_uri()
    registry = registry_uri or (tracking_uri if tracking_uri else mlflow.get_registry_uri())
    for uri in (tracking, registry):
        if problem := missing_store(uri):
            raise InputError(problem)
    try:
        with defaults(MLFLOW_PATIENCE):
            client = mlflow.MlflowClient(tracking_uri=tracking, registry_uri=registry)
            yield Store(client=client, tracking=shown_address(tracking), registry=shown_address(registry))
    except AuditError:
        raise
    except Exception as error:  # stores and artefact clients raise whatever their own libraries raise
        raise InputError(f"MLflow at {shown_address(tracking)} cannot be read: {cause(error)}") from error


def of_run(store: Store, run_id: str) -> tuple[Audited, ...]:
    """The audited models of an audit's run, without the reference; exactly one for the run of one model."""
    run = _run(store, run_id)
    parent_id = run.data.tags.get(PARENT)
    if RESULT_ID not in run.data.tags:
        raise InputError(f"run {run_id} is not an audit; give a run that `audit run` logged, or its result folder")
    if parent_id is None:
        found = _downloaded(store, run)
        subjects = tuple(one for one in found if not one.model.is_reference)
        if not subjects:
            raise InputError(f"the audit of run {run_id} holds no audited model beside the reference")
        return subjects
    found = _downloaded(store, _run(store, parent_id))
    index = run.data.tags.get(MODEL_INDEX, "")
    if not index.isdecimal() or int(index) >= len(found):
        raise InputError(
            f"run {run_id} has lost the tag {MODEL_INDEX}, its place among the audit's {len(found)} models; give run {parent_id}"
        )
    return (found[int(index)],)


def whole(store: Store, run_id: str) -> tuple[Audited, ...]:
    """All models of the audit with this parent run, the reference too."""
    return _downloaded(store, _run(store, run_id))


def of_version(store: Store, name: str, wanted: str) -> Audited:
    """The newest complete audit of a registered version; `wanted` is a number, `latest`, or `@` and an alias."""
    version = _version(store, name, wanted)
    return _audit_of(store, version, {})


def every_version(store: Store, name: str) -> tuple[VersionRecord, ...]:
    """All versions of a registered model, oldest first, each with its newest complete audit or why it has none."""
    _registered(store, name)
    runs: dict[str, tuple[Audited, ...]] = {}
    return tuple(_record(store, version, runs) for version in _versions(store, name))


def _record(store: Store, version: ModelVersion, runs: dict[str, tuple[Audited, ...]]) -> VersionRecord:
    record = VersionRecord(name=version.name, version=str(version.version), verdict=version.tags.get(VERDICT))
    if RUN_ID not in version.tags:
        return replace(record, why_none="not audited")
    try:
        return replace(record, audited=_audit_of(store, version, runs))
    except InputError as error:
        return replace(record, why_none=str(error))


def _audit_of(store: Store, version: ModelVersion, runs: dict[str, tuple[Audited, ...]]) -> Audited:
    """The audit that a version's tags lead to; `runs` keeps what was read, since one audit may hold several versions."""
    label = f"{printable(version.name)}, version {version.version}"
    run_id = version.tags.get(RUN_ID)
    if run_id is None:
        reference = shlex.quote(printable(f"models:/{version.name}/{version.version}"))
        raise InputError(f"{label} has not been audited; audit it with: audit run {reference} --data DATA")
    run_id = printable(run_id, 64)
    if run_id not in runs:
        runs[run_id] = _downloaded(store, _run(store, run_id))
    for one in sorted(runs[run_id], key=lambda one: one.model.is_reference):
        identity = one.model.identity
        if (printable(identity.name), identity.version) == (printable(version.name), str(version.version)):
            return replace(one, source=f"{label}, MLflow run {run_id}")
    raise InputError(f"the tags of {label} lead to run {run_id}, which audited other models; audit it again")


def _run(store: Store, run_id: str) -> Run:
    from mlflow.exceptions import MlflowException

    try:
        run = store.client.get_run(run_id)
    except MlflowException as error:
        if error.error_code not in {*GONE, "INVALID_PARAMETER_VALUE"}:
            raise
        raise InputError(
            f"there is no run {run_id} in {store.tracking}; check its id, and --tracking-uri (MLFLOW_TRACKING_URI)"
        ) from error
    if run.info.lifecycle_stage == "deleted":
        raise InputError(f"run {run_id} is in the trash; restore it (mlflow runs restore --run-id {run_id}), or audit again")
    return run


def _downloaded(store: Store, run: Run) -> tuple[Audited, ...]:
    """All models of an audit's parent run, the reference too."""
    run_id = run.info.run_id
    if RESULT_ID not in run.data.tags or PARENT in run.data.tags:
        raise InputError(f"run {run_id} is not the run of an audit, although a tag leads there; audit again")
    if COMPLETE not in run.data.tags:
        raise InputError(f"the upload of the audit of run {run_id} broke off; finish it where the result is: audit push FOLDER")
    present = {item.path for item in store.client.list_artifacts(run_id)}
    if RESULT_FILE not in present:
        raise InputError(f"run {run_id} has lost its artefact {RESULT_FILE}; restore the artefact store, or audit again")
    with TemporaryDirectory(prefix="audit-") as place:
        for name in sorted(present & {RESULT_FILE, TABLE_FILE}):
            store.client.download_artifacts(run_id, name, place)
        found = audited_in(Path(place), source=f"MLflow run {run_id}", run_id=run_id)
    if found[0].result.id != run.data.tags[RESULT_ID]:
        raise InputError(f"the {RESULT_FILE} of run {run_id} is that of another audit; it was replaced: audit again")
    return found


def _registered(store: Store, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        store.client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code not in {*GONE, "INVALID_PARAMETER_VALUE"}:
            raise
        raise InputError(f"there is no registered model {printable(name, 120)!r} in {store.registry}; {_CHECK}") from error


def _versions(store: Store, name: str) -> list[ModelVersion]:
    """Every version of exactly this name, oldest first."""
    found: list[ModelVersion] = []
    token: str | None = None
    while True:
        page = store.client.search_model_versions(name_filter(name), max_results=_PAGE, page_token=token)
        found += [version for version in page if version.name == name]
        token = page.token
        if not token:
            return sorted(found, key=lambda version: int(version.version))


def _version(store: Store, name: str, wanted: str) -> ModelVersion:
    from mlflow.exceptions import MlflowException

    _registered(store, name)
    shown = repr(printable(name, 120))
    if wanted == "latest":
        versions = _versions(store, name)
        if not versions:
            raise InputError(f"model {shown} has no version yet; register one")
        return versions[-1]
    try:
        if wanted.startswith("@"):
            return store.client.get_model_version_by_alias(name, wanted[1:])
        return store.client.get_model_version(name, wanted)
    except MlflowException as error:
        if error.error_code not in {*GONE, "INVALID_PARAMETER_VALUE"}:
            raise
        what = f"alias {printable(wanted[1:], 60)!r}" if wanted.startswith("@") else f"version {printable(wanted, 20)}"
        raise InputError(f"model {shown} has no {what} in {store.registry}; look at its page in the MLflow UI") from error
