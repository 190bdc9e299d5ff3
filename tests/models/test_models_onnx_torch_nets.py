"""Networks of torchvision's, small, through both of torch's exporters: the converted graph gives their outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torchvision
from exported import exported
from torch import nn

from audit.models.onnx_torch import convert

NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), 64),
    "mobilenet_v3_small": (lambda: torchvision.models.mobilenet_v3_small(num_classes=10), 64),
    "vit": (
        lambda: torchvision.models.VisionTransformer(
            image_size=32, patch_size=8, num_layers=2, num_heads=3, hidden_dim=48, mlp_dim=96, num_classes=10
        ),
        32,
    ),
    "swin": (
        lambda: torchvision.models.SwinTransformer(
            patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=[4, 4], num_classes=10
        ),
        32,
    ),
}


def network(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The network, away from where it starts and with statistics of images, so that its gradients do not vanish; three images."""
    make, size = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = make()
        for parameter in module.parameters():
            if parameter.ndim == 1 or float(parameter.detach().abs().max()) == 0:
                parameter.data += 0.1 * torch.randn_like(parameter)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = 1.0
        with torch.no_grad():
            module.train()(torch.rand(8, 3, size, size))
        return module.eval(), torch.rand(3, 3, size, size)


def gradient(module: nn.Module, images: torch.Tensor) -> torch.Tensor:
    x = images.clone().requires_grad_(True)
    outputs = module(x)
    (found,) = torch.autograd.grad((outputs * torch.linspace(-1, 1, outputs.shape[1], dtype=outputs.dtype)).sum(), x)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_network_comes_back(name: str, dynamo: bool, tmp_path: Path):
    module, images = network(name)
    path = exported(module, images, tmp_path / "net.onnx", dynamo=dynamo)
    model = onnx.load(path)
    converted = convert(model)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, {session.get_inputs()[0].name: images.numpy()})[0]
    assert np.abs(converted(images).numpy() - expected).max() <= 1e-5 * (expected.max() - expected.min())
    assert converted.gradients.exists and converted.gradients.lost_in == ()
    # In double precision, so that a rectifier that rounding switches does not count as a difference.
    ours, theirs = gradient(converted.double(), images.double()), gradient(module.double(), images.double())
    assert float(theirs.abs().max()) > 1e-6
    # Folding batch normalisation into a convolution was done in float32.
    assert float((ours - theirs).norm() / theirs.norm()) < 1e-3
    # Another number of rows than it was exported with.
    torch.testing.assert_close(converted(images[:1].double()), converted(images.double())[:1], rtol=1e-9, atol=1e-9)
