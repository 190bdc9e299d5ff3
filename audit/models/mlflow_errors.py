"""What MLflow raises while a model is looked up or read, in one sentence that says what to do; without importing mlflow."""

from __future__ import annotations

import re
from typing import NoReturn

from audit.errors import InputError
from audit.models.ref import ModelRef, RefKind
from audit.text import printable, redact


def explain(error: Exception, ref: ModelRef, store: str, *, downloading: bool = False) -> NoReturn:
    """Raise the one sentence that fits what MLflow raised.

    Args:
        error: what was raised; an `InputError` is passed on as it is.
        ref: the model that was looked for.
        store: the store that was asked.
        downloading: whether it was found, and its files were asked for.

    Raises:
        InputError: always.
    """
    if isinstance(error, InputError):
        raise error
    where = printable(redact(store))
    code, text = str(getattr(error, "error_code", "")), str(error)
    if code == "UNAUTHENTICATED" or re.search(r"\b401\b", text):
        credentials = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        reason = f"the MLflow server {where} wants credentials (401); {credentials}"
    elif code == "PERMISSION_DENIED" or re.search(r"\b403\b", text):
        reason = f"the MLflow server {where} denies access to {ref.reference} (403); ask its owner for permission to read"
    elif "Max retries exceeded" in text or isinstance(error, ConnectionError | TimeoutError):
        reason = f"the MLflow server {where} cannot be reached; is it running, and is --tracking-uri (MLFLOW_TRACKING_URI) right?"
    elif code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE") or isinstance(error, OSError):
        reason = _absent(ref, text, where, downloading=downloading)
    else:
        reason = f"model {ref.reference} cannot be read from {where}: {first_line(error)}"
    raise InputError(reason) from error


def _absent(ref: ModelRef, text: str, where: str, *, downloading: bool) -> str:
    name = printable(ref.name or "", 120)
    if downloading and ref.kind is RefKind.RUN:
        return f"run {ref.run_id} has no model at {printable(ref.path or '')!r}; look at the run's artefacts in the MLflow UI"
    if downloading:
        return f"the files of model {ref.reference} are missing from the artefact store: {printable(text, 200)}"
    if ref.kind is RefKind.RUN:
        return f"there is no run {ref.run_id} in {where}"
    if ref.kind is RefKind.LOGGED:
        return f"there is no logged model {ref.model_id} in {where}"
    if "alias" in text.lower():
        return f"model {name!r} has no alias {ref.alias!r} in {where}; set it in the registry, or name a version"
    if "Model Version" in text:
        return f"model {name!r} has no version {ref.version} in {where}"
    if "Registered Model" in text:
        return f"there is no registered model {name!r} in {where}"
    return f"model {ref.reference} cannot be found in {where}: {printable(text, 200)}"


def first_line(error: Exception) -> str:
    """The first line of what an exception says, or its name."""
    return printable(redact(str(error).strip().split("\n")[0] or type(error).__name__), 200)
