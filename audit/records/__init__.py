"""Where results are found: a folder that an audit wrote, a run of an audit in MLflow, or a registered version's tags."""

from __future__ import annotations

import re
from pathlib import Path

from audit.audited import Audited, VersionRecord
from audit.errors import InputError
from audit.records import tracking
from audit.records.folder import audited_in, read_folder
from audit.result import AuditResult
from audit.text import printable, redact

ACCEPTED = "a result folder, runs:/RUN, models:/NAME/3, models:/NAME@ALIAS or models:/NAME/latest"
_RUN = re.compile(r"runs:/+([0-9a-zA-Z-]{1,64})/*|([0-9a-f]{32})")
_VERSION = re.compile(r"models:/([^/@:]+)(?:/(\d+|latest)|(@[\w.-]+))")


def audits(text: str, *, tracking_uri: str | None = None, registry_uri: str | None = None) -> tuple[Audited, ...]:
    """The audited models that `text` names, without the reference; nothing is left on this machine.

    | text | models |
    |---|---|
    | a result folder, or the `result.json` inside one | all of the audit |
    | `runs:/RUN`, or a run's bare id of 32 digits | all of the audit; one, where it is the run of one model |
    | `models:/NAME/3`, `models:/NAME@ALIAS`, `models:/NAME/latest` | the newest complete audit of that version |

    Args:
        text: one of these forms.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.
        registry_uri: MLflow's model registry; None takes the tracking store's.

    Raises:
        InputError: there is no such audit, or it cannot be read; the sentence says why.
    """
    text = text.strip()
    # An address is never a folder of that name: what lies in a working folder must not speak for a registered version.
    address = _is_address(text)
    if (match := _RUN.fullmatch(text)) and (address or not Path(text).exists()):
        with tracking.opened(tracking_uri, registry_uri) as store:
            return tracking.of_run(store, match[1] or match[2])
    if match := _VERSION.fullmatch(text):
        with tracking.opened(tracking_uri, registry_uri) as store:
            return (tracking.of_version(store, match[1], match[2] or match[3]),)
    if address:
        raise InputError(f"{_shown(text)} names no audit; give {ACCEPTED}")
    found = audited_in(Path(text), source=f"folder {_shown(text)}")
    subjects = tuple(one for one in found if not one.model.is_reference)
    if not subjects:
        raise InputError(f"{_shown(text)} holds no audited model beside the reference")
    return subjects


def audit(text: str, *, tracking_uri: str | None = None, registry_uri: str | None = None) -> Audited:
    """The only audited model that `text` names, as in `audits`.

    Raises:
        InputError: as `audits`; or there are several.
    """
    found = audits(text, tracking_uri=tracking_uri, registry_uri=registry_uri)
    if len(found) > 1:
        raise InputError(f"{_shown(text)} holds {len(found)} audited models; name one of them, as in models:/NAME/VERSION")
    return found[0]


def reference_of(
    audited: Audited, text: str, *, tracking_uri: str | None = None, registry_uri: str | None = None
) -> Audited | None:
    """The reference model of the audit that `audited` is of, where it had one; `text` is what `audits` found it by.

    Raises:
        InputError: as `audits`.
    """
    if all(not model.is_reference for model in audited.result.models):
        return None
    if audited.run_id is None:
        every = audited_in(Path(text.strip()), source=audited.source)
    else:
        with tracking.opened(tracking_uri, registry_uri) as store:
            every = tracking.whole(store, audited.run_id)
    return next((one for one in every if one.model.is_reference), None)


def versions(name: str, *, tracking_uri: str | None = None, registry_uri: str | None = None) -> tuple[VersionRecord, ...]:
    """Every version of a registered model, oldest first, each with its newest complete audit or why it has none.

    Args:
        name: the model's name, with or without `models:/` before it.
        tracking_uri: MLflow's tracking store; None takes MLflow's own setting.
        registry_uri: MLflow's model registry; None takes the tracking store's.

    Raises:
        InputError: there is no such model, or the store cannot be read.
    """
    with tracking.opened(tracking_uri, registry_uri) as store:
        return tracking.every_version(store, model_name(name))


def model_name(text: str) -> str:
    """The name of a registered model, with or without `models:/` before it.

    Raises:
        InputError: the text names a version, an alias or something else.
    """
    name = text.strip().removeprefix("models:/").rstrip("/")
    if not name or re.search(r"[/@:]", name):
        raise InputError(f"{_shown(text)} is not the name of a registered model; give the name alone, as in models:/NAME")
    return name


def find(text: str) -> tuple[AuditResult, Path]:
    """The result that `text` names, and its folder.

    Args:
        text: a result folder, or the `result.json` inside one.

    Raises:
        InputError: there is no readable result.
    """
    if _is_address(text) and not Path(text).exists():
        raise InputError(
            f"{_shown(text)} is not a folder on this machine, and this needs one; download the audit's run "
            "(mlflow artifacts download --run-id RUN --dst-path FOLDER) and give that folder"
        )
    path = Path(text)
    result = read_folder(path)
    return result, path.parent if path.is_file() else path


def _is_address(text: str) -> bool:
    return "://" in text or text.startswith(("runs:/", "models:/"))


def _shown(text: str) -> str:
    return printable(redact(text))
