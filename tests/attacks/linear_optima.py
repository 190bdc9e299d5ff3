"""Linear models of K classes, on which the best attack is known: z_t - z_y gains epsilon times the dual norm of w_t - w_y."""

import numpy as np
import torch

from audit.attacks.run import Batch
from audit.models.torch_module import wrap
from audit.vocabulary import Norm

SHAPE = (1, 6, 6)


class Linear(torch.nn.Module):
    def __init__(self, classes: int, scale: float, log_probabilities: bool):
        super().__init__()
        source = torch.Generator().manual_seed(classes)
        self.inner = torch.nn.Linear(36, classes)
        self.log_probabilities = log_probabilities
        with torch.no_grad():
            self.inner.weight.copy_(scale * torch.randn(classes, 36, generator=source))
            self.inner.bias.copy_(-0.5 * self.inner.weight.sum(dim=1))

    def forward(self, x):
        z = self.inner(x.flatten(1))
        return z.log_softmax(dim=1) if self.log_probabilities else z


def linear(classes: int, *, count: int = 20, scale: float = 1.0, log_probabilities: bool = False):
    """A classifier, a batch of images away from the edge of the pixel range, labelled by it, and the weights (K, 36)."""
    network = Linear(classes, scale, log_probabilities)
    x = 0.35 + 0.3 * torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(3))
    classifier = wrap(network, image_shape=SHAPE, device="cpu")
    labels = classifier.logits(x).argmax(dim=1)
    return classifier, batch_of(x, labels), network.inner.weight.detach()


def batch_of(images: torch.Tensor, labels: torch.Tensor) -> Batch:
    count = len(labels)
    return Batch(images=images, labels=labels, targets=labels, ids=tuple(map(str, range(count))), rows=np.arange(count))


def dual(slopes: torch.Tensor, norm: Norm) -> torch.Tensor:
    """The dual norm of each row of (n, d)."""
    return torch.linalg.vector_norm(slopes, ord={Norm.LINF: 1, Norm.L2: 2, Norm.L1: float("inf")}[norm], dim=1)
