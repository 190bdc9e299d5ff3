"""Data of an MLflow run: its artefacts, downloaded, or the path a logged dataset came from. Only here does this room use mlflow.

| reference | what it is |
|---|---|
| `runs:/RUN/PATH` | a file or folder among the run's artefacts, in any of the forms of files |
| `mlflow-artifacts:/PATH` | the same by its place in the artefact store of an MLflow server |
| `runs:/RUN#dataset`, `runs:/RUN#dataset=NAME` | the local source of a dataset logged with `mlflow.data` |

What follows a `#` otherwise, or a comma after `#dataset`, is handed on to the form found there: `runs:/RUN/photos#train`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from audit.data.files import shown
from audit.environment import MLFLOW_PATIENCE, defaults, missing_store
from audit.errors import DataError
from audit.text import printable, redact

_RUN = re.compile(r"runs:/+(?P<run>[^/#]+)(?:/(?P<path>.*?))?/?(?:#(?P<suffix>[^#]*))?", re.DOTALL)
_STORE = re.compile(r"(?P<root>mlflow-artifacts:/(?:/[^/#]+)?)/*(?P<path>[^#].*?)/?(?:#(?P<suffix>[^#]*))?", re.DOTALL)
# The other file of such a pair, or the images of a table, lie beside it.
_NEEDS_NEIGHBOURS = (".npy", ".csv", "ubyte", "ubyte.gz")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What a reference leads to on this machine: another reference, and the words for where it came from."""

    reference: str
    words: str


@dataclass(frozen=True, kw_only=True)
class _Store:
    """The artefacts of a `run`, or those of a server under `root`; `uri` is the tracking store."""

    uri: str
    run: str | None = None
    root: str = ""

    @property
    def words(self) -> str:
        return f"the artefact store {printable(redact(self.root))}" if self.run is None else f"run {printable(self.run, 60)}"

    def listed(self, path: str) -> list[str]:
        import mlflow

        if self.run is None:
            infos = mlflow.artifacts.list_artifacts(artifact_uri=f"{self.root}/{path}", tracking_uri=self.uri)
        else:
            infos = mlflow.MlflowClient(tracking_uri=self.uri).list_artifacts(self.run, path)
        return [info.path for info in infos]

    def downloaded(self, path: str, into: Path) -> Path:
        import mlflow

        if self.run is None:
            place = f"{self.root}/{path}"
            return Path(mlflow.artifacts.download_artifacts(artifact_uri=place, dst_path=str(into), tracking_uri=self.uri))
        return Path(mlflow.MlflowClient(tracking_uri=self.uri).download_artifacts(self.run, path, str(into)))


def is_mlflow(ref: str) -> bool:
    """Whether a reference is to MLflow, by its beginning."""
    return ref.startswith(("runs:/", "mlflow-artifacts:/"))


def fetch(ref: str, into: Path, *, tracking_uri: str | None = None) -> Fetched:
    """Download what a reference names, or find the path a logged dataset came from.

    Args:
        ref: one of the forms of the table at the top.
        into: an existing empty folder of our own.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.

    Raises:
        DataError: no such run, artefact or dataset; the server does not answer, or refuses access; the dataset has no local source.
    """
    match = (_RUN if ref.startswith("runs:/") else _STORE).fullmatch(ref)
    path = (match["path"] or "") if match else ""
    if match is None or "\0" in ref or ".." in PurePosixPath(path).parts:
        raise DataError(f"{shown(ref)} is no place in MLflow; write runs:/RUN/PATH, mlflow-artifacts:/PATH or runs:/RUN#dataset")
    import mlflow

    store = tracking_uri or mlflow.get_tracking_uri()
    if problem := missing_store(store):
        raise DataError(problem)
    suffix = match["suffix"] or ""
    is_run = "run" in match.groupdict()
    with defaults(MLFLOW_PATIENCE), _explained(ref, store):
        if is_run:
            run = mlflow.MlflowClient(tracking_uri=store).get_run(match["run"])
            if not path and suffix.split(",")[0].partition("=")[0] == "dataset":
                item, _, rest = suffix.partition(",")
                return _logged(run, item.partition("=")[2] or None, rest)
            local = _download(_Store(uri=store, run=match["run"]), path, into)
            words = f"MLflow run {printable(match['run'], 60)}, artefact {printable(path, 120) or 'folder'}"
        else:
            local = _download(_Store(uri=store, root=match["root"].rstrip("/")), path, into)
            words = f"MLflow artefact {printable(path, 120)}"
    return Fetched(reference=f"{local}#{suffix}" if suffix else str(local), words=words)


def _download(store: _Store, path: str, into: Path) -> Path:
    """A file or folder of a store, with its neighbours where it needs them."""
    parent = str(PurePosixPath(path).parent) if "/" in path else ""
    if path:
        known = store.listed(parent)
        if PurePosixPath(path).name not in {PurePosixPath(name).name for name in known}:
            there = ", ".join(printable(name, 60) for name in known[:8]) or "nothing"
            raise DataError(f"{store.words} has no artefact {shown(path)}; there is {there}")
    asked = parent if path.lower().endswith(_NEEDS_NEIGHBOURS) else path
    local = store.downloaded(asked, into)
    if asked != path:
        local = local / PurePosixPath(path).name
    if not local.exists() or (local.is_dir() and not any(local.iterdir())):
        raise DataError(f"{store.words} has no files at {shown(path) if path else 'its top'}; log the data as artefacts of the run")
    return local


def _logged(run: Any, name: str | None, rest: str) -> Fetched:
    """The local source of a dataset logged with `mlflow.data`."""
    run_id = printable(run.info.run_id, 60)
    logged = [entry.dataset for entry in (run.inputs.dataset_inputs if run.inputs else [])]
    named = [entry for entry in logged if name is None or entry.name == name]
    listed = ", ".join(printable(entry.name, 60) for entry in logged[:8])
    if not logged:
        raise DataError(f"run {run_id} has no logged dataset; log one with mlflow.log_input, or give the data by path")
    if not named:
        raise DataError(f"run {run_id} has no dataset called {shown(name or '')}; it has {listed}")
    if len({entry.source for entry in named}) > 1:
        raise DataError(f"run {run_id} has several datasets ({listed}); name one with #dataset=NAME")
    entry = named[0]
    called = f"dataset {shown(entry.name)} of run {run_id}"
    uri = _local_uri(entry, called)
    parts = urlsplit(uri)
    path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(uri)
    try:
        path.stat()
    except (OSError, ValueError):
        raise DataError(f"{called} came from {shown(path)}, which cannot be read on this machine; give the data by path") from None
    return Fetched(
        reference=f"{path}#{rest}" if rest else str(path),
        words=f"{called}, logged with MLflow digest {printable(entry.digest, 60)}",
    )


def _local_uri(entry: Any, called: str) -> str:
    try:
        content = json.loads(entry.source)
        described = content if isinstance(content, dict) else {}
    except (ValueError, RecursionError):
        described = {}
    kind = printable(str(entry.source_type), 40)
    uri = described.get("uri")
    if kind == "local" and isinstance(uri, str):
        return uri
    if kind == "code":
        tags = described.get("tags")
        script = tags.get("mlflow.source.name") if isinstance(tags, dict) else None
        named = f" ({printable(redact(str(script)), 120)})" if script else ""
        raise DataError(f"{called} was made by code{named} and has no file to read; save the images and give them by path")
    place = next((described[key] for key in ("uri", "url", "path") if isinstance(described.get(key), str)), None)
    where = f" {shown(place)}" if place is not None else ""
    raise DataError(f"{called} comes from a source of type {kind}{where}, which is not read; download it and give the data by path")


@contextmanager
def _explained(ref: str, store: str) -> Iterator[None]:
    """Raise the one sentence that fits what MLflow raised."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # stores raise anything from HTTP errors to database errors
        raise DataError(_sentence(error, shown(ref), printable(redact(store)))) from None


def _sentence(error: Exception, ref: str, store: str) -> str:
    code, text = str(getattr(error, "error_code", "")), str(error)
    if code == "UNAUTHENTICATED" or re.search(r"\b401\b", text):
        credentials = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        return f"the MLflow server {store} wants credentials (401); {credentials}"
    if code == "PERMISSION_DENIED" or re.search(r"\b403\b", text):
        return f"the MLflow server {store} denies access to {ref} (403); ask its owner for permission to read"
    if "Max retries exceeded" in text or isinstance(error, ConnectionError | TimeoutError):
        return f"the MLflow server {store} cannot be reached; is it running, and is --tracking-uri (MLFLOW_TRACKING_URI) right?"
    if code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE") and re.search(r"\brun\b", text, re.IGNORECASE):
        return f"there is no run for {ref} in {store}; check its id, and --tracking-uri (MLFLOW_TRACKING_URI)"
    first = printable(redact(text.strip().split("\n")[0] or type(error).__name__), 200)
    return f"data {ref} cannot be read from {store}: {first}"
