"""The torch part of an audit on a GPU gives what it gives on the CPU, within the contract: at most 1 outcome in 500 flips, and
continuous values agree to 1e-4 of their size.

A machine with a GPU may have little installed: these tests use torch, NumPy, SciPy, pytest and what the project's own torch part
imports (Pillow, PyArrow), and neither MLflow nor ONNX. They run alone: `python -m pytest -m gpu tests/gpu`
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import small_arms
import torch
from torch import nn

from audit.collect import COLLECTORS, FITS
from audit.data import Chunk
from audit.errors import OutOfMemory
from audit.evidence import PER_THREAT, Evidence, EvidenceKey, EvidenceStore, FisherSpectrum, Predictions, RowEvidence, WorstCase
from audit.fisher.spectrum import spectrum
from audit.models import Classifier, resolve_outputs
from audit.models.blocks import map_blocks
from audit.models.torch_module import wrap
from audit.profiles import profile
from audit.settings import Settings
from audit.vocabulary import Threat

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="NOT RUN: no CUDA device, so nothing is known of this code on a GPU"),
]

THREAT = Threat.parse("linf:0.06")
SHAPE = (1, 12, 12)
CLASSES, EXAMPLES = 6, 1000
MOST_FLIPS = 1 / 500
CONTINUOUS = 1e-4
SETTINGS = Settings(
    profile=replace(
        profile("quick"),
        linf=small_arms.pgd(cross_entropy=10, margin=10),
        score_based=small_arms.queries(5, 60),
        fisher_samples=200,
    )
)


def blobs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (count, 1, 12, 12) of a class's own pattern under noise, and their labels."""
    patterns = torch.rand(CLASSES, *SHAPE, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=random)
    noise = torch.randn(count, *SHAPE, generator=random)
    return (0.3 + 0.4 * patterns[labels] + 0.25 * noise).clamp(0, 1), labels


@cache
def network() -> nn.Module:
    """A small CNN, trained on the CPU for a few seconds until it is right on most images, and not on all."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(), nn.Flatten()
        )
        model = nn.Sequential(*layers, nn.Linear(16 * 5 * 5, CLASSES))
    images, labels = blobs(2000, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(120):
        rows = slice(step * 100 % 2000, step * 100 % 2000 + 100)
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimiser.step()
    return model.eval()


@cache
def sample() -> Chunk:
    images, labels = blobs(EXAMPLES, seed=2)
    ids = np.array([f"image {index}" for index in range(EXAMPLES)])
    return Chunk(positions=np.arange(EXAMPLES), ids=ids, labels=labels.numpy(), images=images.numpy())


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The evidence of one device."""

    predictions: Predictions
    white_box: WorstCase
    black_box: WorstCase
    fisher: FisherSpectrum


@cache
def gathered(device: str) -> Gathered:
    # A module is moved in place.
    classifier: Classifier = wrap(copy.deepcopy(network()), image_shape=SHAPE, device=device)
    assert classifier.device.type == device
    classifier = resolve_outputs(classifier, torch.from_numpy(sample().images[:32]).to(classifier.device))

    def collect(kind: Evidence, needed: EvidenceStore) -> RowEvidence:
        threat = THREAT if kind in PER_THREAT else None
        return COLLECTORS[kind].collect(classifier, sample(), SETTINGS, needed, threat)

    predictions = collect(Evidence.PREDICTIONS, EvidenceStore())
    store = EvidenceStore({EvidenceKey(kind=Evidence.PREDICTIONS, threat=None): predictions})
    # What the white-box arm and the spectrum rest on, in dependency order.
    for kind in (Evidence.TEMPERATURE, Evidence.PROBE_SAMPLE, Evidence.PROBE, Evidence.GRADIENT_PROBE, Evidence.GRADIENT_HEALTH):
        threat = THREAT if kind in PER_THREAT else None
        item = FITS[kind].fit(store, threat) if kind in FITS else collect(kind, store)
        store = store.with_item(EvidenceKey(kind=kind, threat=threat), item)
    found = [
        collect(kind, store) for kind in (Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX, Evidence.FISHER_SPECTRUM)
    ]
    return Gathered(predictions=predictions, white_box=found[0], black_box=found[1], fisher=found[2])  # type: ignore[arg-type]


def close(one: np.ndarray, other: np.ndarray) -> None:
    """Equal to 1e-4 of the largest value of the array, so that values near 0 are not asked for more digits than they have."""
    assert float(np.abs(one - other).max()) <= CONTINUOUS * float(np.abs(one).max())


def test_the_setting_is_one_in_which_something_could_differ() -> None:
    cpu = gathered("cpu")
    assert 0.7 < cpu.predictions.correct.mean() < 1
    robust = cpu.white_box.robust.mean()
    assert 0.05 < robust < 0.95
    assert robust <= cpu.black_box.robust.mean() < cpu.predictions.correct.mean()


def test_predictions() -> None:
    cpu, gpu = gathered("cpu").predictions, gathered("cuda").predictions
    close(cpu.logits, gpu.logits)
    assert (cpu.predicted != gpu.predicted).mean() <= MOST_FLIPS


@pytest.mark.parametrize("arm", ["white_box", "black_box"])
def test_the_worst_case_of_each_arm(arm: str) -> None:
    cpu, gpu = (getattr(gathered(device), arm) for device in ("cpu", "cuda"))
    flipped = np.flatnonzero(cpu.robust != gpu.robust)
    assert len(flipped) <= MOST_FLIPS * EXAMPLES, f"examples {flipped.tolist()}"


def test_fisher_information() -> None:
    cpu, gpu = gathered("cpu").fisher, gathered("cuda").fisher
    close(cpu.gram, gpu.gram)
    close(cpu.margin_linf, gpu.margin_linf)
    close(cpu.margin_l2, gpu.margin_l2)
    for one, other in zip(spectrum(cpu.gram, cpu.logits, 1.0), spectrum(gpu.gram, gpu.logits, 1.0), strict=True):
        close(one, other)


def test_gradients_and_jacobians() -> None:
    images = torch.from_numpy(sample().images[:40])
    found = []
    for device in ("cpu", "cuda"):
        classifier = wrap(copy.deepcopy(network()), image_shape=SHAPE, device=device)
        _, _, gradient = classifier.loss_gradient(images.to(device), lambda z, _: z.logsumexp(1) - z[:, 0])
        _, jacobian = classifier.jacobian(images.to(device))
        found.append((gradient.cpu().numpy(), jacobian.cpu().numpy()))
    close(found[0][0], found[1][0])
    close(found[0][1], found[1][1])


def test_rows_are_bit_identical_under_permutation_and_partial_fill() -> None:
    classifier = wrap(copy.deepcopy(network()), image_shape=SHAPE, device="cuda")
    images = torch.from_numpy(sample().images[:100]).cuda()
    whole = classifier.logits(images)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(3)).cuda()
    assert torch.equal(classifier.logits(images[order]), whole[order])
    assert torch.equal(classifier.logits(images[5:11]), whole[5:11])


def test_convolutions_are_not_rounded_to_tf32() -> None:
    """In TF32 these sums of 400 products would be off by about 1e-3."""
    with torch.random.fork_rng():
        torch.manual_seed(4)
        wide = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    images = torch.rand(8, 64, 12, 12, generator=torch.Generator().manual_seed(5))
    expected = copy.deepcopy(wide).double()(images.double()).detach().numpy()
    found = wrap(copy.deepcopy(wide), image_shape=(64, 12, 12), device="cuda").logits(images.cuda()).cpu().numpy()
    assert float(np.abs(found - expected).max()) <= 1e-5 * float(np.abs(expected).max())
    # What a user's process had chosen is as it was.
    assert torch.backends.cudnn.allow_tf32


def test_a_block_that_does_not_fit_is_told_apart_and_half_of_it_fits() -> None:
    """The memory that a block takes is held down to 1.5 blocks' worth; the caller's answer to it is to halve the blocks."""
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    row = 1 << 28  # bytes that a row takes while it is worked on
    rows = 8
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_reserved() + 1.5 * rows * row / 2) / total))
    assert free > rows * row
    images = torch.rand(rows, *SHAPE).cuda()

    def hungry(block: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, ...]:
        held = torch.ones(len(block), row // 4, device="cuda")
        return (block.flatten(1).sum(1) + held[:, 0],)

    try:
        with pytest.raises(OutOfMemory, match=f"a block of {rows} images does not fit into memory"):
            map_blocks(images, rows, hungry)
        (found,) = map_blocks(images, rows // 2, hungry)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    close(found.cpu().numpy(), (images.flatten(1).sum(1) + 1).cpu().numpy())
