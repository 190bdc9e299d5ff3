"""The least that keeps the classifier contract: a function in float64, no blocks, no padding."""

import torch

from audit.errors import ModelError


class PlainClassifier:
    def __init__(self, network, classes, refuses_outside=False):
        self.network, self.classes, self.refuses_outside = network, classes, refuses_outside
        self.device, self.lacks, self.forward_passes = torch.device("cpu"), {}, 0

    def logits(self, images):
        if self.refuses_outside and (images.min() < 0 or images.max() > 1):
            raise ModelError("values outside [0, 1]")
        self.forward_passes += len(images)
        with torch.no_grad():
            return self.network(images)

    def jacobian(self, images):
        x = images.clone().requires_grad_(True)
        z = self.network(x)
        rows = [torch.autograd.grad(z[:, k].sum(), x, retain_graph=True)[0].flatten(1) for k in range(self.classes)]
        return z.detach(), torch.stack(rows, dim=1)

    def loss_gradient(self, images, loss):
        x = images.clone().requires_grad_(True)
        z = self.network(x)
        values = loss(z, torch.arange(len(images)))
        return z.detach(), values.detach(), torch.autograd.grad(values.sum(), x)[0]

    def jvp(self, images, directions):
        return torch.func.jvp(self.network, (images,), (directions,))


def linear(weights, bias=None):
    """Logits W x + b for images (n, c, h, w); W is (K, d)."""
    bias = torch.zeros(len(weights), dtype=weights.dtype) if bias is None else bias
    return PlainClassifier(lambda x: x.flatten(1) @ weights.T + bias, len(weights))


def smooth(classes=5, dimension=36, dtype=torch.float64, scale=1.0):
    """A small tanh network with random weights."""
    source = torch.Generator().manual_seed(0)
    first = torch.randn(20, dimension, generator=source, dtype=torch.float64).to(dtype) / dimension**0.5 * 3
    second = torch.randn(classes, 20, generator=source, dtype=torch.float64).to(dtype) * scale
    return PlainClassifier(lambda x: (x.flatten(1) @ first.T).tanh() @ second.T, classes)
