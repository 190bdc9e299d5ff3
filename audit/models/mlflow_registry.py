"""Models from an MLflow store: resolved once, downloaded, read as data. The only place with mlflow in this room."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from audit.environment import MLFLOW_PATIENCE, defaults, missing_store, name_filter, variables
from audit.errors import InputError, ModelError
from audit.models import class_names
from audit.models.mlflow_errors import explain, first_line
from audit.models.mlmodel import MLmodel, Route, read
from audit.models.own_folder import own_folder
from audit.models.pt2_device import saved_on_gpu, to_cpu
from audit.models.ref import ModelRef, RefKind
from audit.models.trust import digests, overall_digest
from audit.result import ModelIdentity
from audit.text import printable, redact

if TYPE_CHECKING:
    import torch
    from mlflow import MlflowClient

_LOGGED_SOURCE = re.compile(r"^models:/(m-[0-9a-zA-Z]+)$")


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A model on disk: its MLmodel file read, its files digested, nothing of it executed."""

    folder: Path
    model: MLmodel
    identity: ModelIdentity


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Where a reference leads: `uri` is its fixed name, `location` is where its files are."""

    uri: str
    location: str
    name: str
    version: str | None = None
    model_id: str | None = None
    run_id: str | None = None
    description: str | None = None
    tags: Mapping[str, str]


def fetch(ref: ModelRef, into: Path, *, tracking_uri: str | None = None, registry_uri: str | None = None) -> Fetched:
    """Resolve a registry reference to one fixed model and download it.

    Args:
        ref: anything but a file.
        into: an existing folder of our own, so that what was digested is what is loaded.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.
        registry_uri: MLflow's model registry; None takes the tracking store's.

    Raises:
        InputError: no such model, version, alias, run or artefact; the server does not answer, or refuses access.
        ModelError: what was downloaded is no model this project can load.
    """
    import mlflow
    from mlflow import MlflowClient

    tracking, registry = _stores(tracking_uri, registry_uri)
    with defaults(MLFLOW_PATIENCE):
        try:
            found = _find(MlflowClient(tracking_uri=tracking, registry_uri=registry), ref)
        except Exception as error:  # stores raise anything from HTTP errors to database errors
            explain(error, ref, registry if ref.name else tracking)
        try:
            folder = Path(
                mlflow.artifacts.download_artifacts(
                    artifact_uri=found.location, dst_path=str(into), tracking_uri=tracking, registry_uri=registry
                )
            )
        except Exception as error:  # as above, and anything an artefact store raises
            explain(error, ref, tracking, downloading=True)
    files = digests(folder)
    label = printable(found.name)
    model = read(folder, label if found.version is None else f"{label}, version {found.version}")
    identity = ModelIdentity(
        reference=ref.reference,
        uri=printable(redact(found.uri)),
        name=label,
        flavour="",
        digest=overall_digest(files),
        classes=0,
        runtime="",
        device="",
        outputs="",
        input_shape=(),
        version=found.version,
        model_id=found.model_id or model.model_id,
        run_id=found.run_id or model.run_id,
        description=printable(redact(found.description), 2000) if found.description else None,
        tags={printable(key): printable(redact(value), 500) for key, value in sorted(found.tags.items())},
        files=files,
        class_names=class_names.from_tags(found.tags, label),
    )
    return Fetched(folder=folder, model=model, identity=identity)


def load_module(fetched: Fetched, *, trusted: bool, device: torch.device) -> torch.nn.Module:
    """Deserialise the PyTorch flavour of a fetched model that was found harmless, or is trusted.

    Raises:
        ModelError: it cannot be deserialised; a missing Python module is named with the model's own requirements.
    """
    import mlflow.pytorch
    import torch

    who, route = fetched.identity.label, fetched.model.route
    flag = {} if trusted else {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"}
    options = {"map_location": device} if route is Route.PICKLE else {}
    with explained_loading(fetched):
        if route is Route.PT2 and device.type == "cpu" and saved_on_gpu(fetched.model.file):
            to_cpu(fetched.model.file)
        with variables(flag):
            module = mlflow.pytorch.load_model(str(fetched.folder), **options)
        if route is Route.PT2 and device.type != "cpu":
            from torch.export.passes import move_to_device_pass

            # A program cannot be moved once it is a module. The file is the one that MLflow has just checked and loaded.
            module = move_to_device_pass(torch.export.load(fetched.model.file), str(device)).module()
    if not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"{who}: {fetched.model.file.name} holds a {type(module).__name__}, not a torch module; log the network itself"
        )
    return module


@contextmanager
def explained_loading(fetched: Fetched) -> Iterator[None]:
    """Say in one sentence what went wrong while a model was deserialised.

    Raises:
        ModelError: anything was raised; a missing Python module is named with the model's own requirements.
    """
    who = fetched.identity.label
    try:
        with own_folder():
            yield
    except ModuleNotFoundError as error:
        needs = ", ".join(fetched.model.requirements) or "not recorded"
        raise ModelError(
            f"{who}: loading it needs the Python module {error.name!r}, which is not installed; "
            f"install it (the model's own requirements: {needs})"
        ) from error
    except Exception as error:  # unpickling and graph readers raise anything
        raise ModelError(f"{who}: {fetched.model.file.name} cannot be loaded: {first_line(error)}") from error


def write_tags(
    ref: ModelRef,
    tags: Mapping[str, str],
    known: ModelIdentity,
    *,
    prefix: str,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
) -> None:
    """Set tags on the version, or logged model, that a reference leads to, and delete its other tags that begin with `prefix`.

    Raises:
        InputError: it leads elsewhere than to `known` by now, has no tags, or the store refuses.
    """
    from mlflow import MlflowClient

    tracking, registry = _stores(tracking_uri, registry_uri)
    with defaults(MLFLOW_PATIENCE):
        try:
            client = MlflowClient(tracking_uri=tracking, registry_uri=registry)
            found = _find(client, ref)
            if found.version != known.version or (found.version is None and found.model_id != known.model_id):
                raise InputError(f"{ref.reference} leads to another model now than the one that was looked at; inspect it again")
            stale = [key for key in found.tags if key.startswith(prefix) and key not in tags]
            if found.version is not None:
                for key, value in tags.items():
                    client.set_model_version_tag(found.name, found.version, key, value)
                for key in stale:
                    client.delete_model_version_tag(found.name, found.version, key)
            elif found.model_id is not None:
                client.set_logged_model_tags(found.model_id, dict(tags))
                for key in stale:
                    client.delete_logged_model_tag(found.model_id, key)
            else:
                raise InputError(f"{ref.reference} is a folder of a run, which has no tags of its own; register the model")
        except Exception as error:  # as in `fetch`
            explain(error, ref, registry if ref.name else tracking)


def _find(client: MlflowClient, ref: ModelRef) -> _Found:
    if ref.kind is RefKind.RUN and ref.run_id and ref.path:
        return _in_run(client, ref.run_id, ref.path)
    if ref.kind is RefKind.LOGGED and ref.model_id:
        logged = client.get_logged_model(ref.model_id)
        return _Found(
            uri=f"models:/{ref.model_id}",
            location=logged.artifact_location,
            name=logged.name,
            model_id=ref.model_id,
            run_id=logged.source_run_id,
            tags=dict(logged.tags),
        )
    if ref.name is None:
        raise InputError(f"model {ref.reference!r} is a file, not a registry reference")
    client.get_registered_model(ref.name)
    if ref.kind is RefKind.ALIAS and ref.alias:
        version = client.get_model_version_by_alias(ref.name, ref.alias)
    elif ref.kind is RefKind.LATEST:
        found = client.search_model_versions(name_filter(ref.name), order_by=["version_number DESC"])
        newest = next((each for each in found if each.name == ref.name), None)
        if newest is None:
            raise InputError(f"model {printable(ref.name)!r} has no version yet; register one")
        version = newest
    else:
        version = client.get_model_version(ref.name, str(ref.version))
    # MLflow resolves a models: URI in its globally set store, whatever store it is told of, so the files are located here.
    location = client.get_model_version_download_uri(ref.name, str(version.version))
    logged_source = _LOGGED_SOURCE.match(location)
    if logged_source:
        location = client.get_logged_model(logged_source[1]).artifact_location
    return _Found(
        uri=f"models:/{ref.name}/{version.version}",
        location=location,
        name=ref.name,
        version=str(version.version),
        model_id=version.model_id or (logged_source[1] if logged_source else None),
        run_id=version.run_id or None,
        description=version.description or None,
        tags={key: value for key, value in version.tags.items() if isinstance(value, str)},
    )


def _in_run(client: MlflowClient, run_id: str, path: str) -> _Found:
    """A model logged in a run by its name (the newest of that name), or a folder among the run's artefacts."""
    run = client.get_run(run_id)
    logged = [client.get_logged_model(output.model_id) for output in (run.outputs.model_outputs if run.outputs else [])]
    named = [model for model in logged if model.name == path]
    uri = f"runs:/{run_id}/{path}"
    if not named:
        return _Found(uri=uri, location=uri, name=path, run_id=run_id, tags={})
    newest = max(named, key=lambda model: model.creation_timestamp)
    return _Found(
        uri=uri,
        location=newest.artifact_location,
        name=path,
        model_id=newest.model_id,
        run_id=run_id,
        tags=dict(newest.tags),
    )


def _stores(tracking_uri: str | None, registry_uri: str | None) -> tuple[str, str]:
    """Where to look for runs and for versions; both must be there."""
    import mlflow

    tracking = tracking_uri or mlflow.get_tracking_uri()
    registry = registry_uri or tracking_uri or mlflow.get_registry_uri()
    for store in (tracking, registry):
        if problem := missing_store(store):
            raise InputError(problem)
    return tracking, registry
