"""The minimum-norm attacks with the norms they know, and linear models whose nearest boundary inside [0, 1] is known."""

from functools import partial

import numpy as np
import torch

from audit.attacks.cw import cw
from audit.attacks.ddn import ddn
from audit.attacks.deepfool import deepfool
from audit.attacks.fab import fab
from audit.attacks.fmn import fmn
from audit.attacks.run import Batch
from audit.models.torch_module import wrap
from audit.vocabulary import Norm

ATTACKS = {"deepfool": deepfool, "fab": partial(fab, steps=30), "fmn": fmn, "ddn": ddn, "cw": cw}
NORMS = {
    "deepfool": (Norm.LINF, Norm.L2),
    "fab": (Norm.LINF, Norm.L2, Norm.L1),
    "fmn": (Norm.LINF, Norm.L2, Norm.L1),
    "ddn": (Norm.L2,),
    "cw": (Norm.L2,),
}
EVERY = [(name, norm) for name in ATTACKS for norm in NORMS[name]]
WITH_TARGET = [(name, norm) for name, norm in EVERY if name != "deepfool"]


def batch_of(images, labels, targets=None):
    ids = tuple(map(str, range(len(images))))
    return Batch(images=images, labels=labels, targets=labels if targets is None else targets, ids=ids, rows=np.arange(len(images)))


def linear(shape, classes, count, seed=0):
    """A linear model, images with a fifth of the pixels at the end of the range, labels and logits; W (K, d), b (K,)."""
    source = torch.Generator().manual_seed(seed)
    size = int(np.prod(shape))
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(size, classes))
    x = torch.rand(max(count, 20), *shape, generator=source)
    x = torch.where(x < 0.1, 0.0, torch.where(x > 0.9, 1.0, x))
    with torch.no_grad():
        network[1].weight.copy_(torch.randn(classes, size, generator=source) / size**0.5)
        network[1].bias.zero_()
        network[1].bias.sub_(network(x).mean(dim=0))
    x, classifier = x[:count], wrap(network, image_shape=shape, device="cpu")
    logits = classifier.logits(x)
    return classifier, batch_of(x, logits.argmax(dim=1)), logits, network[1]


def nearest_boundary(x, w, gap, norm):
    """The smallest norm of d with w.d = gap > 0 and x + d in [0, 1], by plain bisection; infinite where the range forbids it."""
    room = np.where(w > 0, 1 - x, np.where(w < 0, x, 0.0))
    if (np.abs(w) * room).sum() < gap:
        return np.inf
    if norm is Norm.L1:
        left, used = gap, 0.0
        for i in np.argsort(-np.abs(w)):
            step = min(room[i], left / max(abs(w[i]), 1e-300))
            left, used = left - step * abs(w[i]), used + step
        return used
    u = np.ones_like(w) if norm is Norm.LINF else np.abs(w)
    low, high = 0.0, 1.0
    while (np.abs(w) * np.minimum(high * u, room)).sum() < gap:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if (np.abs(w) * np.minimum(middle * u, room)).sum() >= gap else (middle, high)
    change = np.minimum(high * u, room)
    return change.max() if norm is Norm.LINF else np.linalg.norm(change)


def optimum(layer, batch, norm, targets=None):
    """Per example the distance to the nearest wrong class, (n,); with `targets`, to the place where that class wins over the label.

    Exact for the untargeted search. For a target it is a lower bound where a third class stands in between.
    """
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    found = []
    for i in range(len(batch)):
        x, y = batch.images[i].double().numpy().ravel(), int(batch.labels[i])
        others = [k for k in range(len(bias)) if k != y] if targets is None else [int(targets[i])]
        gaps = {k: (weight[y] - weight[k]) @ x + bias[y] - bias[k] for k in others}
        found.append(min(nearest_boundary(x, weight[k] - weight[y], gap, norm) for k, gap in gaps.items()))
    return np.array(found)
