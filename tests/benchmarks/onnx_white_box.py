"""White box from ONNX: networks of torchvision's through both of torch's exporters, and attacks on trained ones.

Prints per network what the conversion differs by and what a gradient costs. FASHION_ONNX names a folder of ONNX files as
examples/fashion_mnist.py writes them, and FASHION_DATA their data, to attack those too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from exported import exported
from torch import nn

from audit import data
from audit.attacks.pgd import pgd
from audit.attacks.run import Batch, Oracle, verify
from audit.cli.demo_models import train
from audit.data.sampling import chunks, sample
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.torch_module import wrap
from audit.vocabulary import Capability, Threat

NETWORKS = ("resnet18", "mobilenet_v3_large", "densenet121", "efficientnet_b0", "vit_b_16", "swin_t")
ROWS = 4


def network(name: str) -> nn.Module:
    """With statistics and a head that let gradients through: as it starts, some of these answer the same to every image."""
    torch.manual_seed(0)
    module = getattr(torchvision.models, name)(weights=None)
    for parameter in module.parameters():
        if float(parameter.detach().abs().max()) == 0:
            parameter.data += 0.05 * torch.randn_like(parameter)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0
    with torch.no_grad():
        module.train()(torch.rand(8, 3, 224, 224))
    return module.eval()


def opened(path: Path, images: torch.Tensor) -> Classifier:
    shape = (images.shape[1], images.shape[2], images.shape[3])
    loaded = load(ModelRef.parse(str(path)), image_shape=shape, device="cpu", block_rows=min(len(images), 32))
    return resolve_outputs(loaded, images)


def loss(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return (logits * torch.linspace(-1, 1, logits.shape[1])).sum(1)


def seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return float(np.median(times[1:]))


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, tmp_path):
    torch.set_num_threads(1)
    module, images = network(name), torch.rand(ROWS, 3, 224, 224)
    for dynamo in (True, False):
        # Before its parameters stop asking for gradients: then torch swaps in a fused attention that its exporter does not know.
        exported(module, images[:2], tmp_path / f"{dynamo}.onnx", dynamo=dynamo)
    theirs = wrap(module, image_shape=(3, 224, 224), device="cpu", block_rows=ROWS)
    logits, _, expected = theirs.loss_gradient(images, loss)
    for dynamo in (True, False):
        ours = opened(tmp_path / f"{dynamo}.onnx", images)
        label = f"{name}, {'dynamo' if dynamo else 'torchscript'}"
        assert Capability.GRADIENTS not in ours.lacks, f"{label}: {ours.lacks[Capability.GRADIENTS]}"
        found = ours.loss_gradient(images, loss)
        difference = float((found[0] - ours.logits(images)).abs().max())
        spread = float(logits.max() - logits.min())
        cosine = torch.cosine_similarity(found[2].double().flatten(), expected.double().flatten(), 0)
        relative = float((found[2] - expected).abs().max() / expected.abs().max())
        ratio = seconds(lambda: ours.loss_gradient(images, loss)) / seconds(lambda: theirs.loss_gradient(images, loss))  # noqa: B023
        print(
            f"{label}: converted; logits differ by {difference:.1e} ({difference / spread:.1e} of their range); gradient cosine "
            f"{float(cosine):.9f}, largest relative difference {relative:.1e}; time of a gradient {ratio:.2f} of torch's"
        )
        assert difference <= 1e-4 * spread
        assert cosine > 0.9999


def attacked(classifier: Classifier, chunk: data.Chunk, threat: Threat) -> int:
    """How many images are right after PGD-20 with the margin loss."""
    oracle, batch = Oracle(classifier, len(chunk.labels)), Batch.of(chunk, classifier.device)
    proposals = pgd(oracle, batch, threat, loss="margin", steps=20, seed=0, purpose="bench", stop_early=True)
    return int((~verify(oracle, batch, proposals, threat).broken).sum())


@pytest.mark.parametrize("kind", ["standard", "adversarial"])
def test_attacks_on_digits(kind, tmp_path):
    digits, test = data.load("digits:train"), data.load("digits:test")
    threat = Threat.parse("linf:0.1")
    against = Threat.parse("linf:0.15") if kind == "adversarial" else None
    module = train(digits.images(range(len(digits.labels))), digits.labels, epochs=10, adversarial_threat=against, seed=0)
    chunk = next(chunks(test, sample(test, 200, 0), 200))
    images = torch.from_numpy(chunk.images[:32])
    robust = {}
    for dynamo in (True, False):
        path = tmp_path / f"{dynamo}.onnx"
        exported(module, images[:2], path, dynamo=dynamo)
        robust["dynamo" if dynamo else "torchscript"] = attacked(opened(path, images), chunk, threat)
    robust["torch"] = attacked(wrap(module, image_shape=(1, 8, 8), device="cpu"), chunk, threat)
    print(f"digits, {kind}: right after PGD-20, of 200: {robust}")
    assert max(robust.values()) - min(robust.values()) <= 1


@pytest.mark.skipif("FASHION_ONNX" not in os.environ, reason="FASHION_ONNX names no folder")
@pytest.mark.parametrize("kind", ["standard", "adversarial"])
def test_attacks_on_fashion_mnist(kind):
    path = Path(os.environ["FASHION_ONNX"]) / f"fashion-{kind}.onnx"
    test = data.load(os.environ["FASHION_DATA"])
    chunk = next(chunks(test, sample(test, 200, 0), 200))
    classifier = opened(path, torch.from_numpy(chunk.images[:32]))
    print(f"fashion, {kind}: gradients {classifier.identity.gradients or classifier.lacks[Capability.GRADIENTS]}")
    found = {threat: attacked(classifier, chunk, Threat.parse(threat)) for threat in ("linf:2/255", "linf:8/255")}
    print(f"fashion, {kind}: right after PGD-20, of 200: {found}")
    assert found["linf:8/255"] <= found["linf:2/255"]
