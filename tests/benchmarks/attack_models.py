"""The classifiers that attacks are measured on: how each is built, how it is trained, and the threats it is attacked under.

This module needs torch and NumPy only, so that another attack library can load the models in an environment of its own.
`attack_training.py` fills the cache folder, AUDIT_BENCH_CACHE (by default `audit-bench` in the user's cache folder):

| file | content |
|---|---|
| `models/NAME.pt` | the state of `MODELS[NAME].build()`, for `torch.load(weights_only=True)` |
| `models/NAME.npz` | logits (N, 10) on the sample |
| `models/NAME.json` | accuracy on the whole test part and on the sample, weights, processor seconds of training |
| `samples/DATA.npz` | images (N, c, h, w) float32 in [0, 1], labels (N,), indices (N,) in the test part, ids (N,) |
| `peers/*.json`, `peers/*.npz` | what `peers/run_peer.py` measured |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One classifier. `strength` is Linf's epsilon of `linf` and `interval` training, the standard deviation of `noise`."""

    build: Callable[[], nn.Module]
    data: str
    training: str
    epochs: int
    strength: float = 0.0
    threats: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The attacked images, those that an audit with seed 0 draws from the test part."""

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]
    ids: npt.NDArray[np.str_]


def cache() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "audit-bench"
    return Path(os.environ.get("AUDIT_BENCH_CACHE") or default)


def load_model(name: str) -> nn.Module:
    """A trained classifier of (n, c, h, w) in [0, 1] to 10 logits, in eval mode."""
    model = MODELS[name].build()
    model.load_state_dict(torch.load(cache() / "models" / f"{name}.pt", weights_only=True))
    return model.eval()


def load_sample(data: str) -> Sample:
    with np.load(cache() / "samples" / f"{data}.npz") as arrays:
        return Sample(**{name: arrays[name] for name in ("images", "labels", "indices", "ids")})


def fashion_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def digits_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class _Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inside, outside, 1, stride=stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.shortcut(x) + self.norms[1](self.second(inner)))


def fashion_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        _Residual(16, 16, 1),
        _Residual(16, 32, 2),
        _Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.enter, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.enter(self.norms[0](x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.leave(attended.transpose(1, 2).flatten(2))
        return x + self.mix(self.norms[1](x))


class _Transformer(nn.Module):
    """A vision transformer of 16 patches of 7 x 7 pixels; the mean of its tokens is classified."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 7, stride=7)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.Sequential(*(_Attention(width, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.places).mean(dim=1))


def fashion_vit() -> nn.Module:
    return _Transformer(width=64, depth=4, heads=4)


# Each epsilon leaves between a quarter and three quarters of the sample standing.
MODELS = {
    "fashion-cnn": Recipe(
        build=fashion_cnn, data="fashion", training="standard", epochs=12, threats={"linf": 8 / 255, "l2": 0.5, "l1": 5.0}
    ),
    "fashion-cnn-linf": Recipe(
        build=fashion_cnn,
        data="fashion",
        training="linf",
        strength=16 / 255,
        epochs=20,
        threats={"linf": 24 / 255, "l2": 1.5, "l1": 5.0},
    ),
    "fashion-resnet": Recipe(
        build=fashion_resnet, data="fashion", training="standard", epochs=10, threats={"linf": 4 / 255, "l2": 0.25, "l1": 2.0}
    ),
    "fashion-vit": Recipe(
        build=fashion_vit, data="fashion", training="standard", epochs=20, threats={"linf": 4 / 255, "l2": 0.25, "l1": 2.0}
    ),
    "fashion-cnn-noise": Recipe(
        build=fashion_cnn,
        data="fashion",
        training="noise",
        strength=0.25,
        epochs=20,
        threats={"linf": 16 / 255, "l2": 1.0, "l1": 6.0},
    ),
    "fashion-resnet-linf": Recipe(
        build=fashion_resnet,
        data="fashion",
        training="linf",
        strength=12 / 255,
        epochs=12,
        threats={"linf": 24 / 255, "l2": 1.5, "l1": 4.0},
    ),
    "fashion-vit-noise": Recipe(
        build=fashion_vit,
        data="fashion",
        training="noise",
        strength=0.25,
        epochs=20,
        threats={"linf": 12 / 255, "l2": 0.75, "l1": 4.0},
    ),
    "fashion-cnn-interval": Recipe(
        build=fashion_cnn,
        data="fashion",
        training="interval",
        strength=0.08,
        epochs=40,
        threats={"linf": 28 / 255, "l2": 1.0, "l1": 4.0},
    ),
    "digits-cnn": Recipe(
        build=digits_cnn, data="digits", training="standard", epochs=20, threats={"linf": 0.1, "l2": 0.5, "l1": 1.5}
    ),
    "digits-cnn-linf": Recipe(
        build=digits_cnn, data="digits", training="linf", strength=0.15, epochs=30, threats={"linf": 0.2, "l2": 0.75, "l1": 2.0}
    ),
}
