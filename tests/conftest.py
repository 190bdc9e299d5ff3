"""Shared by all tests: one torch thread, since two cores under load make two threads many times slower."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test runs in a folder of its own, so that none finds or leaves a store, an audit or a cache in the project."""
    monkeypatch.chdir(tmp_path)
    # mlflow.set_tracking_uri and its like leave their choice behind in the environment.
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def digits_store(tmp_path_factory):
    """Two registered digits models; see `digits_models.py`."""
    from digits_models import build

    return build(tmp_path_factory.mktemp("store"))
