"""Smallest changes of a linear model against its closed form, and a universal perturbation that is scored on other images."""

from dataclasses import replace

import numpy as np
import pytest
import small_run
import torch

from audit.collect import COLLECTORS
from audit.collect.universal_perturbation import images_at_once
from audit.data import Chunk
from audit.errors import MissingCapability, Undefined
from audit.evidence import Evidence, EvidenceKey, EvidenceStore, MinimalPerturbations, UniversalEffect
from audit.metrics.minimal import median_minimal_perturbation, universal_perturbation_success
from audit.models.torch_module import wrap
from audit.settings import Settings
from audit.vocabulary import Threat

SETTINGS = replace(Settings.of("quick"), profile=replace(small_run.SMALL, minimal_samples=9))
SHAPE = (1, 4, 4)
WEIGHTS = torch.randn(16, generator=torch.Generator().manual_seed(4))


def model():
    """Two classes on either side of one plane through the middle of the pixel range."""
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([WEIGHTS / 2, -WEIGHTS / 2]))
        network[1].bias.copy_(torch.tensor([-WEIGHTS.sum() / 4, WEIGHTS.sum() / 4]))
    return wrap(network, image_shape=SHAPE, device="cpu", block_rows=16)


def chunk_of(count, seed=0, start=0) -> Chunk:
    images = 0.4 + 0.2 * torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))
    labels = ((images - 0.5).flatten(1) @ WEIGHTS < 0).long().numpy()
    return Chunk(
        positions=np.arange(start, start + count),
        ids=np.array([f"{seed}-{i}" for i in range(count)]),
        labels=labels,
        images=images.numpy(),
    )


def collected(kind, chunk, threat=None, **needed):
    classifier = model()
    predictions = COLLECTORS[Evidence.PREDICTIONS].collect(classifier, chunk, SETTINGS, EvidenceStore(), None)
    store = {EvidenceKey(kind=Evidence.PREDICTIONS): predictions}
    store |= {EvidenceKey(kind=Evidence(name), threat=threat): value for name, value in needed.items()}
    return COLLECTORS[kind].collect(classifier, chunk, SETTINGS, EvidenceStore(store), threat)


def test_minimal_perturbations_of_a_linear_model_are_its_closed_form():
    chunk = chunk_of(12)
    chunk.labels[3] = 1 - chunk.labels[3]
    found = collected(Evidence.MINIMAL_PERTURBATIONS, chunk)
    assert found.positions.tolist() == list(range(9)) and found.distance.shape == (9, 4)
    gap = np.abs((chunk.images[:9] - 0.5).reshape(9, -1) @ WEIGHTS.numpy())
    for norm, dual in (("linf", 1), ("l2", 2)):
        exact = gap / np.linalg.norm(WEIGHTS.numpy(), ord=dual)
        columns = [place for place, search in enumerate(found.searches) if search.endswith(norm)]
        for column in columns:
            ratio = np.delete(found.distance[:, column] / exact, 3)
            assert (ratio > 0.999).all() and (ratio < 1.25).all(), found.searches[column]
        exact[3] = 0
        estimate = median_minimal_perturbation(minimal_perturbations=found, variant=norm)
        assert np.median(exact) * 0.999 < estimate.value < 1.05 * np.median(exact)
    assert found.distance[3].tolist() == [0, 0, 0, 0] and "1 examples at 0" in estimate.notes[1]
    assert estimate.notes[0] == "by FMN and DDN" and found.backward_passes[3] == 0


def test_what_is_not_found_is_infinitely_far_and_never_zero():
    evidence = MinimalPerturbations(
        searches=("FMN linf", "FMN l2", "DDN l2", "FMN l1"),
        positions=np.arange(3),
        distance=np.array([[0.1, 1.0, np.inf, 2.0], [np.inf] * 4, [np.inf, 3.0, 2.0, np.inf]]),
        forward_passes=np.zeros(3, dtype=int),
        backward_passes=np.zeros(3, dtype=int),
    )
    l2 = median_minimal_perturbation(minimal_perturbations=evidence, variant="l2")
    assert l2.value == 2.0 and l2.interval is None and "1 examples without a find" in l2.notes[1]
    with pytest.raises(Undefined, match="nothing was found for 2 of 3"):
        median_minimal_perturbation(minimal_perturbations=evidence, variant="linf")
    empty = replace(evidence, distance=np.zeros((0, 4)), positions=np.zeros(0, dtype=int))
    with pytest.raises(Undefined, match="no example"):
        median_minimal_perturbation(minimal_perturbations=empty, variant="l1")


@pytest.mark.parametrize("text", ["linf:0.05", "l2:0.3"])
def test_a_universal_perturbation_is_found_on_other_images_than_it_is_scored_on(text):
    threat, apart = Threat.parse(text), replace(chunk_of(40, seed=1), positions=np.full(40, -1))
    # One change can only move all images to one side of the plane: away from the class that most images have.
    apart = replace(apart, images=np.concatenate([apart.images[apart.labels == 0]] * 4)[:40])
    found = collected(Evidence.UNIVERSAL_PERTURBATION, apart, threat)
    size = np.abs(found.delta).max() if text.startswith("linf") else np.linalg.norm(found.delta)
    assert found.images == 40 and found.fooled > 0 and 0 < size <= threat.epsilon * (1 + 1e-6)
    chunk = chunk_of(60)
    effect = collected(Evidence.UNIVERSAL_EFFECT, chunk, threat, universal_perturbation=found)
    margin = (chunk.images - 0.5).reshape(60, -1) @ WEIGHTS.numpy()
    moved = (np.clip(chunk.images + found.delta, 0, 1) - 0.5).reshape(60, -1) @ WEIGHTS.numpy()
    crossed = np.sign(margin) != np.sign(moved)
    assert effect.scored.all() and (effect.broken == crossed).all() and crossed.any()
    estimate = universal_perturbation_success(universal_effect=effect, universal_perturbation=found)
    assert estimate.value == crossed.mean() and estimate.interval is None and "40 images set apart" in estimate.notes[0]


def test_images_that_it_was_found_on_are_not_scored():
    threat, chunk = Threat.parse("linf:0.05"), chunk_of(20)
    half = Chunk(positions=chunk.positions[1::2], ids=chunk.ids[1::2], labels=chunk.labels[1::2], images=chunk.images[1::2])
    found = collected(Evidence.UNIVERSAL_PERTURBATION, half, threat)
    effect = collected(Evidence.UNIVERSAL_EFFECT, chunk, threat, universal_perturbation=found)
    assert effect.scored.tolist() == [True, False] * 10 and not effect.broken[1::2].any()


def test_where_there_is_no_universal_perturbation():
    found = collected(Evidence.UNIVERSAL_PERTURBATION, chunk_of(4), Threat.parse("l1:2"))
    assert not found.delta.any()
    effect = UniversalEffect(
        threat=Threat.parse("l1:2"),
        scored=np.ones(4, dtype=bool),
        broken=np.zeros(4, dtype=bool),
        forward_passes=np.zeros(4, dtype=int),
        backward_passes=np.zeros(4, dtype=int),
    )
    with pytest.raises(MissingCapability, match="Linf and L2"):
        universal_perturbation_success(universal_effect=effect, universal_perturbation=found)
    nobody = replace(effect, threat=Threat.parse("l2:1"), scored=np.zeros(4, dtype=bool))
    with pytest.raises(Undefined, match="right on the clean image"):
        universal_perturbation_success(universal_effect=nobody, universal_perturbation=found)
    # The search sees all its images at once, whatever the size of a chunk: their number depends on their shape.
    assert images_at_once((3, 64, 64)) == 256 and images_at_once((3, 128, 128)) == 85
