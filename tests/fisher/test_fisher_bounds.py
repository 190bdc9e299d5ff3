"""Architecture bounds: single layers against dense matrices, whole networks against the exact spectrum, and what is not known."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torchvision import models

import audit
from audit.errors import MissingCapability
from audit.fisher import constants
from audit.fisher.bounds import architecture_bound, log_information


def seeded(make):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


def dense_norm(layer, shape):
    """The exact norm of a linear layer at this size: its matrix, from unit vectors."""
    units = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        zero = layer.double()(torch.zeros(1, *shape, dtype=torch.float64))
        return float(torch.linalg.matrix_norm((layer(units) - zero).flatten(1), 2))


LAYERS = {
    "conv": lambda: nn.Conv2d(2, 4, 3, padding=1),
    "strided": lambda: nn.Conv2d(2, 4, 5, stride=2, padding=2),
    "patches": lambda: nn.Conv2d(2, 8, 4, stride=4),
    "groups": lambda: nn.Conv2d(2, 6, 3, padding=1, groups=2),
    "dilated": lambda: nn.Conv2d(2, 3, 3, padding=2, dilation=2),
    "even": lambda: nn.Conv2d(2, 3, 4, padding="same"),
    "circular": lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
    "wide": lambda: nn.Conv2d(2, 70, 3, padding=1),
    "mean": lambda: nn.AvgPool2d(2),
    "overlapping mean": lambda: nn.AvgPool2d(3, stride=2, padding=1),
    "global mean": lambda: nn.AdaptiveAvgPool2d(1),
    "uneven mean": lambda: nn.AdaptiveAvgPool2d((3, 5)),
    "spread": lambda: nn.AdaptiveAvgPool2d(20),
}


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_linear_layer_is_bounded_closely(name):
    layer, shape = seeded(LAYERS[name]).eval(), (2, 12, 12)
    found, exact = constants.of_layer(layer, shape), dense_norm(layer, shape)
    # The unfolding bound alone is within the root of the taps; what a stride leaves out is not seen.
    assert exact <= found * (1 + 1e-6) and found <= exact * {"wide": 3.2, "strided": 2.0}.get(name, 1.25)


def test_single_constants():
    norm = nn.BatchNorm2d(2).eval()
    norm.running_var.copy_(torch.tensor([0.25, 4.0]))
    norm.weight.data.copy_(torch.tensor([1.0, -8.0]))
    assert constants.of_layer(norm, None) == pytest.approx(8 / 2, rel=1e-4)
    assert constants.of_layer(nn.MaxPool2d(3, stride=2), None) == 2 and constants.of_layer(nn.MaxPool2d(2), None) == 1
    assert constants.of_layer(nn.AdaptiveAvgPool2d(1), (3, 4, 4)) == pytest.approx(1 / 4)
    assert constants.of_layer(nn.LayerNorm(4, eps=0.01), None) == pytest.approx(10)
    large = torch.randn(3000, 3000, generator=torch.Generator().manual_seed(0))
    assert constants.spectral_norm(large) >= float(torch.linalg.matrix_norm(large @ large.T[:, :5], 2)) / float(large.norm())


def test_the_softmax_part_bounds_its_eigenvalue():
    logits = np.random.default_rng(0).normal(size=(50, 6)) * 3
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    top = np.linalg.eigvalsh(np.stack([np.diag(row) - np.outer(row, row) for row in p]))[:, -1]
    found = np.exp(log_information(logits, 1.0))
    assert (top <= found * (1 + 1e-9)).all() and (found <= 0.5).all()
    saturated = log_information(np.array([[2000.0, 0.0, 0.0]]), 1.0)
    assert np.isfinite(saturated).all() and saturated[0] < -600


def small_cnn():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)),
        *(nn.GELU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Dropout(), nn.Linear(128, 10)),
    )


def small_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 20), nn.SiLU(), nn.Linear(20, 10))


def small_vit():
    return models.VisionTransformer(
        image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=10
    )


def small_vgg():
    network = models.vgg.VGG(models.vgg.make_layers([8, "M", 16, "M"], batch_norm=True), num_classes=10, init_weights=False)
    network.classifier = nn.Sequential(nn.Linear(16 * 49, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))
    return network


def with_a_head(network):
    """The head of torchvision's ViT starts at 0."""
    nn.init.normal_(network.heads.head.weight, std=0.5)
    return network


NETWORKS = {
    "cnn": small_cnn,
    "mlp": small_mlp,
    "vgg": small_vgg,
    "resnet": lambda: models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=10),
    "bottleneck": lambda: models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10),
    "densenet": lambda: models.DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8, bn_size=2, num_classes=10),
    "vit": lambda: with_a_head(small_vit()),
}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_bound_is_above_the_exact_eigenvalue(name):
    network = seeded(NETWORKS[name])
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.train()(torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(2)))  # statistics of its own
    network.eval()
    found = architecture_bound(network, (3, 32, 32))
    spectrum = audit.fisher_spectrum(network, x, temperature=1, method="exact")
    logits = network(x).detach().double().numpy()
    bound = found.log_lambda_max(logits, 1.0)
    assert np.isfinite(bound).all() and (bound >= np.log(spectrum.lambda_max)).all()
    if name in {"cnn", "mlp"}:
        assert (bound <= np.log(spectrum.lambda_max) + np.log(1e4)).all()
    assert found.log_lambda_max(2 * logits, 2.0) == pytest.approx(bound - 2 * math.log(2))


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x.flatten(1)) ** 2


class Squared(nn.ReLU):
    def forward(self, x):
        return super().forward(x) ** 2


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Own(), "whole model.*Own"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 4), Squared(), nn.Linear(4, 2)), "module 2 .*Squared"),
        (nn.Sequential(nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(8, 2)), "pads by reflect"),
        (nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(4, 2)), "by the batch"),
        (nn.Sequential(nn.AvgPool2d(2, ceil_mode=True), nn.Flatten(), nn.Linear(1, 2)), "several sizes"),
    ],
    ids=["own", "subclass", "reflect", "batch", "ceil"],
)
def test_a_module_that_is_not_known_is_named(network, words):
    with pytest.raises(MissingCapability, match=words):
        architecture_bound(network.eval(), (1, 2, 2))


def test_training_mode_is_refused():
    with pytest.raises(MissingCapability, match="training mode"):
        architecture_bound(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).train(), (1, 2, 2))
