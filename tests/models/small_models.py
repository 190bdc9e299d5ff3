"""Small networks and archives that the tests of this room share; networks at module level, so that they can be pickled."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

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
