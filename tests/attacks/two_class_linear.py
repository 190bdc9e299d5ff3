"""A linear model of two classes, on which the best attack and the nearest boundary are known in closed form."""

import numpy as np
import torch

from audit.attacks.run import Batch
from audit.models.torch_module import wrap
from audit.vocabulary import Norm


def linear(shape: tuple[int, int, int] = (1, 6, 6), count: int = 12, scale: float = 1.0):
    """The classifier, images away from the box with their classes, the weights w of the margin, and the margins' size |w.x + b|."""
    source = torch.Generator().manual_seed(3)
    d = int(np.prod(shape))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(d, 2))
    w = scale * torch.randn(d, generator=source)
    x = 0.35 + 0.3 * torch.rand(count, *shape, generator=source)
    offset = float((x.flatten(1) @ w).mean())
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([w / 2, -w / 2]))
        network[1].bias.copy_(torch.tensor([-offset / 2, offset / 2]))
    gaps = x.flatten(1) @ w - offset
    return wrap(network, image_shape=shape, device="cpu"), batch_of(x, (gaps < 0).long()), w, gaps.abs()


def batch_of(images: torch.Tensor, labels: torch.Tensor) -> Batch:
    """A batch whose examples are called 0, 1, 2, ..."""
    count = len(labels)
    return Batch(images=images, labels=labels, targets=labels, ids=tuple(map(str, range(count))), rows=np.arange(count))


def dual_norm(w: torch.Tensor, norm: Norm) -> float:
    """What a change of length 1 in `norm` moves the margin by at most."""
    return float({Norm.LINF: w.abs().sum(), Norm.L2: w.norm(), Norm.L1: w.abs().max()}[norm])
