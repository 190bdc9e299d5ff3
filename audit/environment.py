"""What MLflow expects around it: settings in environment variables, a store that is there, names that its filters can hold."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from audit.text import printable, redact

# MLflow's own defaults keep a user waiting for minutes when a server is down, and draw progress bars.
MLFLOW_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, and put back what was there."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def defaults(values: Mapping[str, str]) -> AbstractContextManager[None]:
    """As `variables`, but what the user has set already wins."""
    return variables({name: value for name, value in values.items() if name not in os.environ})


def missing_store(uri: str) -> str | None:
    """Why there is no store at a SQLite address, or None: MLflow would create an empty one and then find nothing in it."""
    if not uri.startswith("sqlite:///") or Path(uri.removeprefix("sqlite:///").partition("?")[0]).is_file():
        return None
    return (
        f"there is no MLflow store at {printable(redact(uri))}; start in the folder that has mlflow.db, "
        "or give --tracking-uri (MLFLOW_TRACKING_URI)"
    )


def name_filter(name: str) -> str:
    r"""MLflow's search filter for a registered model. It may match more names than this one: compare those that come back.

    MLflow's filters have no way to write a quote inside a quoted text, so a name that holds one is matched by a pattern.

    >>> name_filter("digits"), name_filter("it's")
    ("name = 'digits'", "name LIKE 'it_s'")
    """
    pattern = re.sub(r"['\"\\]", "_", name)
    return f"name = '{name}'" if pattern == name else f"name LIKE '{pattern}'"
