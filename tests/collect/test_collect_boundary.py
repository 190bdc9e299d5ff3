"""Boundary distances of linear models against their closed forms, noise against a loop, and searches that find nothing."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import small_run
import torch

from audit.attacks.directions import LAST, grid, most_queries, nearest_change, orthogonal, steps_to
from audit.attacks.randomness import generator
from audit.collect import COLLECTORS, boundary
from audit.data import Chunk
from audit.errors import MissingCapability, Undefined
from audit.evidence import BoundaryDistance, Evidence, EvidenceKey, EvidenceStore, NoiseResponse, Predictions, ProbeSample
from audit.metrics.boundary import (
    empirical_boundary_distance,
    empirical_boundary_distance_adversarial,
    empirical_noise_insensitivity,
)
from audit.models.torch_module import wrap
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

SETTINGS = replace(Settings.of("quick"), profile=replace(small_run.SMALL, boundary_samples=9))
LINF = Threat.parse("linf:0.1")


def linear(classes: int, shape: tuple[int, int, int], scale: float = 1.0) -> torch.nn.Module:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), classes))
    with torch.no_grad():
        drawn = torch.Generator().manual_seed(5)
        network[1].weight.copy_(scale * torch.randn(network[1].weight.shape, generator=drawn))
        network[1].bias.copy_(-network[1].weight.sum(dim=1) / 2 + 0.3 * torch.randn(classes, generator=drawn))
    return network.eval()


def chunk_of(network, shape, count=12, low=0.3, high=0.7) -> Chunk:
    images = low + (high - low) * torch.rand(count, *shape, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        labels = network(images).argmax(dim=1).numpy()
    return Chunk(positions=np.arange(count), ids=np.array([f"x{i}" for i in range(count)]), labels=labels, images=images.numpy())


def evidence_of(kind, network, chunk, settings=SETTINGS, threat=None):
    classifier = wrap(network, image_shape=chunk.images.shape[1:], device="cpu", block_rows=256)
    key = EvidenceKey(kind=Evidence.PREDICTIONS)
    predictions = COLLECTORS[Evidence.PREDICTIONS].collect(classifier, chunk, settings, EvidenceStore(), None)
    sample = ProbeSample(positions=chunk.positions[predictions.correct])
    needed = EvidenceStore({key: predictions, EvidenceKey(kind=Evidence.PROBE_SAMPLE): sample})
    return COLLECTORS[kind].collect(classifier, chunk, settings, needed, threat)


def optima(network, chunk) -> tuple[np.ndarray, np.ndarray]:
    """The exact L2 and Linf distances of a linear model whose optimum lies inside [0, 1]."""
    weights, bias = network[1].weight.detach().double().numpy(), network[1].bias.detach().double().numpy()
    rows = chunk.images.reshape(len(chunk.labels), -1).astype(float)
    l2, linf = [], []
    for row, label in zip(rows, chunk.labels, strict=True):
        gaps = [
            ((weights[label] - weights[k]) @ row + bias[label] - bias[k], weights[label] - weights[k])
            for k in range(len(bias))
            if k != label
        ]
        l2.append(min(gap / np.linalg.norm(step) for gap, step in gaps))
        linf.append(min(gap / np.abs(step).sum() for gap, step in gaps))
    return np.array(l2), np.array(linf)


def test_ebd_of_a_linear_model_is_its_closed_form_at_many_directions(monkeypatch):
    """In three dimensions 1,000 directions come so near the optimal one that the distance is the distance to the plane."""
    monkeypatch.setattr(boundary, "DIRECTIONS", 1000)
    network = linear(3, (1, 1, 3))
    chunk = chunk_of(network, (1, 1, 3), count=9)
    found = evidence_of(Evidence.BOUNDARY_DISTANCE, network, chunk)
    exact = optima(network, chunk)[0] / np.sqrt(3)
    inside = exact < 0.25
    assert inside.sum() >= 5 and not found.censored[inside].any()
    ratio = found.distance[inside] / exact[inside]
    assert (ratio > 1 - 1e-6).all() and (ratio < 1.05).all()


def test_ebd_is_the_least_over_directions_of_a_plain_line_search():
    network = linear(4, (1, 4, 4))
    chunk = chunk_of(network, (1, 4, 4), low=0.0, high=1.0)
    few = replace(SETTINGS, profile=replace(SETTINGS.profile, boundary_samples=5))
    found = evidence_of(Evidence.BOUNDARY_DISTANCE, network, chunk, few)
    assert found.positions.tolist() == list(range(5)) and found.directions == 100
    for place in range(5):
        image = torch.from_numpy(chunk.images[place]).flatten().double()
        half = orthogonal(100, 16, generator(0, f"x{place}", "boundary directions"))
        best = np.inf
        for ray in torch.cat([half, -half]).double():
            moved = (image + torch.from_numpy(np.geomspace(1e-3, 60, 3000))[:, None] * ray).clamp(0, 1)
            with torch.no_grad():
                other = network(moved.float().view(-1, 1, 4, 4)).argmax(dim=1).numpy() != chunk.labels[place]
            if other.any():
                best = min(best, float((moved[other.argmax()] - image).square().mean().sqrt()))
        assert found.censored[place] == (best > LAST)
        if best <= LAST:
            assert found.distance[place] == pytest.approx(best, rel=0.01)


def test_steps_reach_the_distance_after_clipping():
    source = torch.Generator().manual_seed(1)
    flat, half = torch.rand(40, generator=source).double(), orthogonal(10, 40, source).double()
    rays = torch.cat([half, -half])
    room = torch.where(rays > 0, 1 - flat, flat)
    np.testing.assert_allclose((half @ half.T).numpy(), np.eye(10), atol=1e-5)
    for length in (0.1, 1.0, 2.5, 3.2):
        steps, there = steps_to(length, rays, room)
        assert (there == (room.norm(dim=1) >= length)).all()
        moved = (flat + steps[:, None] * rays).clamp(0, 1) - flat
        np.testing.assert_allclose(moved[there].norm(dim=1).numpy(), length, rtol=1e-6)


def test_a_search_that_finds_nothing_says_at_least():
    image, rays = torch.full((1, 2, 2), 0.5), orthogonal(4, 4, torch.Generator().manual_seed(0))
    found = nearest_change(image, rays, lambda points: torch.zeros(len(points), dtype=torch.bool))
    # The farthest that any ray gets from the middle of the cube is a corner, half the range away in every value.
    assert found.censored and found.distance in grid() and 0.3 < found.distance <= 0.5
    assert found.queries <= most_queries(4)
    evidence = BoundaryDistance(
        positions=np.arange(2),
        directions=100,
        distance=np.array([0.1, 0.5]),
        censored=np.array([False, True]),
        queries=np.ones(2, int),
    )
    estimate = empirical_boundary_distance(boundary_distance=evidence)
    assert estimate.value == 0.3 and estimate.notes[0].startswith("at least: 1 of 2 searches")
    none = replace(evidence, distance=np.zeros(0), censored=np.zeros(0, dtype=bool))
    with pytest.raises(Undefined, match="right on the clean image"):
        empirical_boundary_distance(boundary_distance=none)


def test_ebd_asks_for_labels_only():
    assert COLLECTORS[Evidence.BOUNDARY_DISTANCE].capabilities == {Capability.LABELS}
    network = linear(4, (1, 4, 4))
    chunk = chunk_of(network, (1, 4, 4), count=3)
    labelled = evidence_of(Evidence.BOUNDARY_DISTANCE, torch.nn.Sequential(network, OneHot()), chunk)
    scored = evidence_of(Evidence.BOUNDARY_DISTANCE, network, chunk)
    assert (labelled.distance == scored.distance).all()


class OneHot(torch.nn.Module):
    def forward(self, scores):
        return torch.nn.functional.one_hot(scores.argmax(dim=1), scores.shape[1]).float()


@pytest.mark.parametrize("classes", [2, 5, 12])
def test_ebd_2_of_a_linear_model_is_the_exact_distance(classes):
    network = linear(classes, (1, 4, 4))
    chunk = chunk_of(network, (1, 4, 4))
    found = evidence_of(Evidence.BOUNDARY_STEPS, network, chunk)
    exact = optima(network, chunk)[1]
    near = exact < 0.25
    assert near.sum() >= 8 and found.targets == min(9, classes - 1)
    ratio = found.distance[near] / exact[near]
    assert (ratio > 1 - 1e-5).all() and (ratio < 1.05).all() and not found.censored[near].any()


def test_ebd_2_without_a_way_is_censored_at_its_limit():
    network = linear(3, (1, 2, 2), scale=0.0)
    with torch.no_grad():
        network[1].bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    chunk = chunk_of(network, (1, 2, 2), count=4)
    found = evidence_of(Evidence.BOUNDARY_STEPS, network, chunk)
    assert found.censored.all() and (found.distance == 0.5).all()
    assert (found.backward_passes == 2).all()  # one look in each direction shows that nothing leads there
    estimate = empirical_boundary_distance_adversarial(boundary_steps=found)
    assert estimate.value == 0.5 and "at least: 4 of 4" in estimate.notes[0]


def test_noise_response_against_a_loop():
    network = linear(4, (1, 3, 3))
    chunk = chunk_of(network, (1, 3, 3), low=0.0, high=1.0)
    found = evidence_of(Evidence.NOISE_RESPONSE, network, chunk, threat=LINF)
    assert found.copies == 10 and (found.forward_passes == 10).all()

    def loss(image, label):
        scores = network(torch.from_numpy(image)[None]).detach().double().numpy()[0]
        return -scipy.special.log_softmax(scores)[label]

    for row in range(len(chunk.labels)):
        image, label = chunk.images[row], int(chunk.labels[row])
        noise = torch.rand((10, 1, 3, 3), generator=generator(0, f"x{row}", "noise response")).numpy()
        total = 0.0
        for copy in noise:
            moved = np.clip(image + np.float32(0.1) * (2 * copy - 1), 0, 1).astype(np.float32)
            total += abs(loss(moved, label) - loss(image, label)) / np.abs(moved.astype(float) - image).max()
        assert found.ratio[row] == pytest.approx(total / 10, rel=1e-4)
    assert empirical_noise_insensitivity(noise_response=found).value == pytest.approx(found.ratio.mean())


def test_a_steeper_model_answers_noise_more_strongly():
    values = []
    for scale in (0.5, 2.0):
        network = linear(4, (1, 3, 3), scale=scale)
        found = evidence_of(Evidence.NOISE_RESPONSE, network, chunk_of(network, (1, 3, 3)), threat=LINF)
        values.append(empirical_noise_insensitivity(noise_response=found).value)
    assert values[1] > 2 * values[0]


def test_noise_needs_an_linf_ball_and_losses_that_can_move():
    response = NoiseResponse(
        threat=LINF,
        copies=10,
        ratio=np.ones(20),
        answered=np.full(20, 10),
        floored=np.zeros(20, dtype=int),
        forward_passes=np.full(20, 10),
        backward_passes=np.zeros(20, dtype=int),
    )
    assert empirical_noise_insensitivity(noise_response=response).value == 1
    few = replace(response, floored=np.eye(1, 20, dtype=int)[0] * 2)
    assert empirical_noise_insensitivity(noise_response=few).notes[-1] == "2 losses at the floor"
    with pytest.raises(Undefined, match="3 of 220 probabilities"):
        empirical_noise_insensitivity(noise_response=replace(response, floored=np.eye(1, 20, dtype=int)[0] * 3))
    half = replace(response, answered=np.arange(20) % 2 * 10, ratio=np.arange(20) % 2 * 3.0)
    estimate = empirical_noise_insensitivity(noise_response=half)
    assert estimate.value == 3 and estimate.samples == 10 and "100 copies left out" in estimate.notes[1]
    with pytest.raises(Undefined, match="answers no noisy copy"):
        empirical_noise_insensitivity(noise_response=replace(response, answered=np.zeros(20, dtype=int)))
    with pytest.raises(MissingCapability, match="Linf"):
        empirical_noise_insensitivity(noise_response=replace(response, threat=Threat.parse("l2:0.5"), ratio=np.zeros(0)))
    with pytest.raises(Undefined, match="epsilon 0"):
        empirical_noise_insensitivity(noise_response=replace(response, threat=Threat.parse("linf:0")))


def test_floored_probabilities_are_counted():
    class Saturated(torch.nn.Module):
        def forward(self, x):
            z = 1e4 * (x.flatten(1)[:, :2] - 0.5)
            return z.softmax(dim=1).clamp(min=1e-30).log()

    images = np.full((4, 1, 1, 2), 0.5, dtype=np.float32)
    images[:, 0, 0, 0] = 0.9
    chunk = Chunk(positions=np.arange(4), ids=np.array(list("abcd")), labels=np.array([0, 0, 1, 1]), images=images)
    found = evidence_of(Evidence.NOISE_RESPONSE, Saturated(), chunk, threat=LINF)
    assert found.floored.tolist() == [0, 0, 11, 11]


def test_evidence_of_predictions_is_what_decides_who_is_searched():
    network = linear(4, (1, 4, 4))
    chunk = chunk_of(network, (1, 4, 4))
    wrong = replace(chunk, labels=(chunk.labels + (np.arange(12) % 2)) % 4)
    found = evidence_of(Evidence.BOUNDARY_DISTANCE, network, wrong)
    assert found.positions.tolist() == [0, 2, 4, 6, 8]
    assert isinstance(evidence_of(Evidence.PREDICTIONS, network, wrong), Predictions)
