"""Where results are found: a folder that an audit wrote."""

from __future__ import annotations

from pathlib import Path

from audit.errors import InputError
from audit.records.folder import read_folder
from audit.result import AuditResult
from audit.text import printable, redact


def find(text: str) -> tuple[AuditResult, Path]:
    """The result that `text` names, and its folder.

    Args:
        text: a result folder, or the `result.json` inside one.

    Raises:
        InputError: there is no readable result.
    """
    if "://" in text or text.startswith(("runs:/", "models:/")):
        raise InputError(
            f"{printable(redact(text))} is not a folder on this machine; download the run's artifacts first "
            "(mlflow artifacts download --run-id RUN --dst-path DIR) and give that folder"
        )
    path = Path(text)
    result = read_folder(path)
    return result, path.parent if path.is_file() else path
