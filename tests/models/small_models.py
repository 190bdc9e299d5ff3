"""Small networks and archives that the tests of this room share; networks at module level, so that they can be pickled."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from audit.models import Classifier, ModelRef, load

torch.set_num_threads(1)


class Small(nn.Module):
    """Two convolutions and a linear layer; smooth, so that finite differences are exact enough."""

    def __init__(self, channels: int = 3, classes: int = 5, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.features = nn.Sequential(
                nn.Conv2d(channels, 6, 3, padding=1), nn.GELU(), nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.GELU()
            )
            self.head = nn.Linear(8 * 4 * 4, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


class Softmaxed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x).softmax(1)


class LiveDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(nn.functional.dropout(x, 0.5, training=True))


class NotANumber(nn.Module):
    """NaN for images whose mean exceeds 0.9."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Small()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.inner(x)
        return torch.where(x.mean((1, 2, 3))[:, None] > 0.9, torch.full_like(scores, float("nan")), scores)


class Payload:
    """An object whose unpickling writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return Path.write_text, (self.marker, "ran")  # type: ignore[return-value]


class Returns(nn.Module):
    """Returns whatever `shape` makes of a small network's scores."""

    def __init__(self, shape: object) -> None:
        super().__init__()
        self.inner, self.shape = Small(), shape

    def forward(self, x: torch.Tensor) -> object:
        return self.shape(self.inner(x))


def images(count: int, channels: int = 3, seed: int = 1) -> torch.Tensor:
    """(count, channels, 8, 8) in [0, 1]."""
    return torch.rand(count, channels, 8, 8, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True, kw_only=True)
class Store:
    """A SQLite store whose model "small" has version 1 (pt2, alias champion, tags), 2 (pickle), 3 (ONNX), 4 (pt2, batch of 1)."""

    uri: str
    run_id: str
    model_ids: dict[str, str]


def rewritten(source: Path, target: Path, change: Callable[[dict[str, Any]], None], extra: dict[str, bytes] | None = None) -> Path:
    """A copy of a pt2 archive with another graph."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename.endswith("/models/model.json"):
                graph = json.loads(content)
                change(graph)
                content = json.dumps(graph).encode()
            new.writestr(info.filename, content)
        for name, content in (extra or {}).items():
            new.writestr(name, content)
    return target


def open_model(store: Store, text: str, **options: object) -> Classifier:
    """The model that a reference in the store leads to."""
    options = {"image_shape": (3, 8, 8), "device": "cpu", "tracking_uri": store.uri, **options}
    return load(ModelRef.parse(text), **options)  # type: ignore[arg-type]


def hostile_copy(store: Store, tmp_path: Path, kind: str) -> tuple[Path, Store, str]:
    """A run of the store whose artefact `model` is a copy of a good model's folder, for a test to spoil."""
    import mlflow
    from mlflow import MlflowClient

    good = next(Path(store.uri.removeprefix("sqlite:///")).parent.rglob(f"{store.model_ids[kind]}/artifacts"))
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    client = MlflowClient(tracking_uri=store.uri)
    run = client.create_run(mlflow.MlflowClient(tracking_uri=store.uri).get_experiment_by_name("tests").experiment_id)
    return folder, store, run.info.run_id


def upload(store: Store, run_id: str, folder: Path) -> str:
    """Log the folder as the artefact `model` of the run, and name it."""
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=store.uri).log_artifacts(run_id, str(folder), "model")
    return f"runs:/{run_id}/model"
