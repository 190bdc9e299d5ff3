"""Tags on registered versions: what an audit found, what a gate decided; and the alias that a pass may set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from audit.environment import defaults
from audit.errors import InputError, SinkError
from audit.result import AuditResult, ModelResult, Verdict
from audit.sinks import mlflow_content as content
from audit.sinks.mlflow_server import GONE, WHILE_LOGGING, cause, shown_address
from audit.text import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient


def check_alias(alias: str) -> str:
    """An alias that MLflow takes, as given.

    Raises:
        InputError: it does not.

    >>> check_alias("champion")
    'champion'
    """
    if not re.fullmatch(r"[\w-]{1,255}", alias):
        raise InputError(f"the alias {printable(alias, 60)!r} is not one that MLflow takes; use letters, digits, _ and -")
    if alias.lower() == "latest" or re.fullmatch(r"v\d+", alias, re.IGNORECASE):
        raise InputError(f"MLflow keeps the alias {alias!r} for itself; choose a word such as champion")
    return alias


def tag_audited(client: MlflowClient, result: AuditResult, model: ModelResult, parent_id: str) -> list[str]:
    """Tag the registered version, unless it is gone or a later audit has tagged it; a later gate's verdict stays."""
    from mlflow.exceptions import MlflowException

    name, version = model.identity.name, model.identity.version
    if version is None:
        return []
    try:
        found = client.get_model_version(name, version)
    except MlflowException as error:
        if error.error_code not in GONE:
            raise
        return [f"the registry does not hold {printable(model.identity.label)}, so it got no tags"]
    if str(found.tags.get("audit.date", "")) > result.created:
        return [f"{printable(model.identity.label)} keeps the tags of a later audit"]
    tags = content.version_tags(result, model, parent_id)
    judged = {content.VERDICT, content.POLICY, content.POLICY_SHA256}
    gated = str(found.tags.get(content.GATE_DATE, ""))
    kept = gated > result.created
    for key in sorted(found.tags.keys() & (judged | {content.GATE_DATE, content.GATE_RESULT_ID})) if not kept else ():
        if key not in tags:  # it belongs to the verdict that is replaced
            client.delete_model_version_tag(name, version, key)
    for key, value in tags.items():
        if not (kept and key in judged):
            client.set_model_version_tag(name, version, key, value)
    return [f"{printable(model.identity.label)} keeps the verdict of the gate of {printable(gated, 40)}"] if kept else []


def gate_tags(verdict: Verdict, result_id: str, now: datetime) -> dict[str, str]:
    """The tags of a judged version. A verdict that is not a pass comes first, a pass last: no reader meets half a pass."""
    grounds = {
        content.POLICY: verdict.policy,
        content.POLICY_SHA256: verdict.policy_digest,
        content.GATE_DATE: now.isoformat(timespec="seconds"),
        content.GATE_RESULT_ID: result_id,
    }
    word = {content.VERDICT: verdict.status}
    tags = grounds | word if verdict.status == "pass" else word | grounds
    return {key: printable(value, content.TAG_LENGTH) for key, value in tags.items()}


def tag_judged(name: str, version: str, tags: Mapping[str, str], *, tracking_uri: str | None, registry_uri: str | None) -> None:
    """Set tags on a registered version.

    Raises:
        SinkError: the registry did not take them.
    """

    def write(client: MlflowClient) -> None:
        for key, value in tags.items():
            client.set_model_version_tag(name, version, key, value)

    _with_client(write, f"the tags of {printable(name, 120)}, version {version}", tracking_uri, registry_uri)


def set_alias(name: str, version: str, alias: str, *, tracking_uri: str | None, registry_uri: str | None) -> None:
    """Let an alias lead to a registered version, by its number.

    Raises:
        SinkError: the registry did not take it.
    """
    what = f"the alias {alias} of {printable(name, 120)}, version {version}"
    _with_client(lambda client: client.set_registered_model_alias(name, alias, version), what, tracking_uri, registry_uri)


def _with_client(act: Callable[[MlflowClient], None], what: str, tracking_uri: str | None, registry_uri: str | None) -> None:
    from mlflow import MlflowClient

    try:
        with defaults(WHILE_LOGGING):
            act(MlflowClient(tracking_uri=tracking_uri, registry_uri=registry_uri))
    except Exception as error:  # stores raise whatever their own libraries raise
        where = "its default store" if tracking_uri is None else shown_address(registry_uri or tracking_uri)
        raise SinkError(f"MLflow at {where} did not take {what}: {cause(error)}") from error
