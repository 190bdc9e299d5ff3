"""A result folder on disk -> AuditResult and its audited models, or one sentence saying why it cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from audit.audited import Audited
from audit.errors import InputError
from audit.records.examples import ExampleTable, read_table
from audit.result import RESULT_FILE, SCHEMA_VERSION, TABLE_FILE, AuditResult, from_json
from audit.text import printable


def read_folder(path: Path) -> AuditResult:
    """The result in `path`.

    Args:
        path: a result folder, or the `result.json` inside one.

    Raises:
        InputError: the file is missing, unreadable, truncated, not JSON, or of a schema that this version does not know.
    """
    file = path / RESULT_FILE if path.is_dir() else path
    text = _text(file, shown=printable(str(path)))
    name = printable(str(file))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{name} is not whole JSON ({printable(str(error), 120)}); it was cut off or is another file: "
            "restore it or run the audit again"
        ) from error
    _check_schema(document, name)
    return _parse(text, name)


def audited_in(path: Path, *, source: str, run_id: str | None = None) -> tuple[Audited, ...]:
    """Every model of the result in `path`, the reference too, with its per-example columns.

    Args:
        path: a result folder, or the `result.json` inside one.
        source: where the result was found, in words.
        run_id: the audit's parent run in MLflow, where it came from there.

    Raises:
        InputError: as `read_folder`.
    """
    result = read_folder(path)
    table = read_table(path.parent if path.is_file() else path)
    return tuple(
        _with_table(Audited(result=result, index=index, source=source, ids=table.ids[:0], run_id=run_id), table)
        for index in range(len(result.models))
    )


def _with_table(audited: Audited, table: ExampleTable) -> Audited:
    ids, columns = table.of(audited.index)
    samples = audited.result.data.samples
    if table.problem is not None or len(ids) != samples:
        rows = f"{TABLE_FILE} has {len(ids)} rows of this model, and the result rests on {samples} examples"
        return replace(audited, no_table=table.problem or rows)
    return replace(audited, ids=ids, columns=columns)


def _text(file: Path, *, shown: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not file.parent.is_dir():
            raise InputError(f"there is no folder {shown}; give the folder that an audit wrote") from error
        if file.with_suffix(".json.partial").is_file():
            raise InputError(f"the audit in {shown} was stopped while it wrote {RESULT_FILE}; run it again") from error
        raise InputError(f"there is no {RESULT_FILE} in {shown}; give the folder that an audit wrote") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not a text file; give the folder that an audit wrote, or its {RESULT_FILE}") from error
    except OSError as error:
        raise InputError(f"{shown} cannot be read ({error.strerror}); check its permissions") from error


def _check_schema(document: object, name: str) -> None:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"{name} is JSON but not an audit result: it has no schema_version; give the folder that an audit wrote")
    if version > SCHEMA_VERSION:
        raise InputError(
            f"{name} has schema version {version}, and this version of the tool reads up to {SCHEMA_VERSION}; "
            "upgrade it (pip install -U mlflow-audit)"
        )
    if version < 1:
        raise InputError(f"{name} has schema version {version}, which never existed; it was edited or is another file")


def _parse(text: str, name: str) -> AuditResult:
    from pydantic import ValidationError

    try:
        return from_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{name} does not keep schema version {SCHEMA_VERSION}: {printable(place, 120)}: {printable(first['msg'], 120)}; "
            "it was edited or cut off: restore it or run the audit again"
        ) from error
