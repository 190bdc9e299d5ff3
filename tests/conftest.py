"""Shared by all tests: one torch thread, since two cores under load make two threads many times slower."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("DO_NOT_TRACK", "true")

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from few_metrics import leave_out_costly_metrics

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that none of them is left for one process alone at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Every test runs in a folder of its own, so that none finds or leaves a store, an audit or a cache in the project."""
    monkeypatch.chdir(tmp_path)
    # mlflow.set_tracking_uri and its like leave their choice behind in the environment.
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def few_metrics(monkeypatch):
    """For a test of what is done with an audit, whatever it measured."""
    leave_out_costly_metrics(monkeypatch)


@pytest.fixture(scope="module")
def few_metrics_throughout():
    """The same for all tests and fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_costly_metrics(patch)
        yield


@pytest.fixture
def few_examples(monkeypatch):
    """For a test that must measure everything, of a model that answers slowly: `quick` on fewer examples."""
    from audit import profiles

    quick = replace(
        profiles.profile("quick"),
        boundary_samples=2,
        certified_samples=3,
        corruption_samples=8,
        sequence_samples=4,
        fisher_samples=8,
    )
    monkeypatch.setattr(profiles, "PROFILES", (quick, *profiles.PROFILES[1:]))


@pytest.fixture(scope="session")
def digits_store(tmp_path_factory):
    """Two registered digits models; see `digits_models.py`."""
    from digits_models import build

    return build(tmp_path_factory.mktemp("store"))
