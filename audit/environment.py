"""Environment variables set for a while: MLflow reads its settings nowhere else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

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
