"""The digits that come with scikit-learn, and a small CNN trained on most of them."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits

from audit.data import Chunk


@cache
def digits() -> Chunk:
    """The last 300 digits, 8x8 in [0, 1]."""
    images, labels = _digits()
    return Chunk(
        positions=np.arange(300),
        ids=np.array([f"digit-{i}" for i in range(300)]),
        labels=labels[-300:],
        images=images[-300:],
    )


@cache
def digits_cnn() -> torch.nn.Module:
    """A small CNN trained on the other digits."""
    torch.set_num_threads(1)
    images, labels = _digits()
    x, y = torch.from_numpy(images[:-300]), torch.from_numpy(labels[:-300])
    source = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 16, 3, stride=2, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(256, 10),
        )
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(8):
        for index in torch.randperm(len(x), generator=source).split(64):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(x[index]), y[index]).backward()
            optimiser.step()
    return network.eval()


def _digits() -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    return (data.images[:, None] / 16).astype(np.float32), data.target.astype(np.int64)
