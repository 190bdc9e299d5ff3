"""Talking to an MLflow server: how long to wait, how to name its address, what its errors mean to a user."""

from __future__ import annotations

import errno
import os
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from audit.errors import SinkError
from audit.text import printable, redact

# The codes of a thing that is not there, of old and new servers.
GONE = {"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "ENDPOINT_NOT_FOUND"}
DEFAULT_EXPERIMENT = "audit"
# What the command line logs to when nothing else is said.
DEFAULT_STORE = "sqlite:///mlflow.db"
# The first prints the server's address with its user information; the second draws over the audit's own progress.
_QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
# MLflow's own defaults wait four minutes for a server that is gone.
FIRST_CONTACT = {**_QUIET, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
WHILE_LOGGING = {
    **_QUIET,
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
}


def shown_address(uri: str) -> str:
    """The address without user information, as a link that still opens."""
    parts = urlsplit(uri)
    if parts.scheme in {"http", "https"} and "@" in parts.netloc:
        parts = parts._replace(netloc=parts.netloc.rsplit("@", 1)[1])
        uri = parts.geturl()
    return printable(redact(uri))


def open_hint(uri: str, experiment_id: str, run_id: str) -> str:
    """A link to the run, or the command that opens the UI on a local store."""
    if uri.startswith(("http://", "https://")):
        # Without the workflow a new browser opens the run in the view for language models.
        return f"{uri.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}?workflowType=machine_learning"
    return f"mlflow ui --backend-store-uri {shlex.quote(uri)}"


def push_command(folder: Path, tracking_uri: str | None, experiment: str | None) -> str:
    """The command that finishes a log in the same place; a store that `audit push` finds by itself is left out."""
    words = ["audit", "push", str(folder)]
    if tracking_uri not in {None, os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_STORE}:
        words += ["--tracking-uri", shown_address(tracking_uri or "")]
    if experiment not in {None, DEFAULT_EXPERIMENT}:
        words += ["--experiment", experiment or ""]
    return printable(shlex.join(words), 4096)


def cause(error: BaseException) -> str:
    """What went wrong and what to do, as the middle of a sentence, without the words of three libraries."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import ConnectionError as NoConnection
    from requests.exceptions import HTTPError, Timeout

    if isinstance(error, SinkError):
        return str(error)
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    codes = {link.error_code for link in chain if isinstance(link, MlflowException)}
    status = {link.response.status_code for link in chain if isinstance(link, HTTPError) and link.response is not None}
    text = " ".join(str(link) for link in chain)
    if any(isinstance(link, OSError) and link.errno == errno.ENOSPC for link in chain) or "disk is full" in text:
        return "the disk of its store is full; free some space"
    if codes & {"UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED"} or 401 in status:
        return "it wants a login (401); set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
    if "PERMISSION_DENIED" in codes or 403 in status:
        return "it refuses this login (403); ask its owner for rights on experiment, artifacts and registered model"
    if any(isinstance(link, Timeout) for link in chain) or "timed out" in text:
        return "it did not answer in time; check that it is running (MLFLOW_HTTP_REQUEST_TIMEOUT sets the seconds to wait)"
    if any(isinstance(link, NoConnection) for link in chain):
        return "it cannot be reached; check the address and that the server is running"
    first = str(error).strip().splitlines() or [type(error).__name__]
    return printable(redact(first[0]), 240)
