"""Layers, distances and certificates as a result holds them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, predictions

from audit.engine.certified import certified
from audit.engine.layers import layers
from audit.engine.table import columns
from audit.evidence import (
    AdversarialNeurons,
    BoundaryDistance,
    BoundarySteps,
    Certification,
    Evidence,
    EvidenceKey,
    EvidenceStore,
    MinimalPerturbations,
    NeuronProfile,
    Neurons,
    NoiseResponse,
    UniversalEffect,
)
from audit.evidence.neurons import SECTION_BYTES
from audit.metrics.certification import RADII, average_certified_radius, certified_accuracy
from audit.metrics.neurons import neuron_sensitivity, neuron_uncertainty

UNITS = np.array([2, 1])
NOTHING = {
    "sections": np.zeros((3, SECTION_BYTES), dtype=np.uint8),
    "below": np.zeros(3, dtype=bool),
    "above": np.zeros(3, dtype=bool),
    "top": np.zeros(3, dtype=bool),
}
PROFILE = NeuronProfile(
    layers=("conv", "head"), units=UNITS, low=np.zeros(3), high=np.array([1.0, 0.0, 2.0]), positions=np.full(4, -1), source="others"
)
CLEAN = Neurons(
    layers=("conv", "head"),
    units=UNITS,
    scored=4,
    counts=np.array([4]),
    means=np.array([[0.5, 0.0, 1.0]]),
    squares=np.array([[4.0, 0.0, 2.0]]),
    magnitudes=np.array([[0.5, 0.0]]),
    **NOTHING,
)
ATTACKED = AdversarialNeurons(
    threat=LINF,
    layers=("conv", "head"),
    units=UNITS,
    scored=3,
    attacked=np.array([True, True, True, False]),
    difference=np.array([[0.1, 1.0], [0.2, 2.0], [0.3, 3.0], [0.0, 0.0]]),
    magnitude=np.array([[0.5, 4.0], [0.5, 4.0], [0.5, 4.0], [0.0, 0.0]]),
    forward_passes=np.array([2, 2, 2, 0]),
    backward_passes=np.zeros(4, dtype=int),
    **NOTHING,
)

CERTIFIED = Certification(
    sigma=0.25,
    alpha=0.001,
    looked=100,
    drawn=1000,
    positions=np.array([0, 1]),
    labels=np.array([0, 0]),
    top=np.array([0, 1]),
    agreed=np.array([1000, 1000]),
    right=np.array([1000, 0]),
    clean=np.array([True, True]),
    queries=np.array([1100, 1100]),
)


def store_of(**evidence) -> EvidenceStore:
    per_threat = {"adversarial_neurons", "noise_response", "universal_effect"}
    return EvidenceStore(
        {EvidenceKey(kind=Evidence(name), threat=LINF if name in per_threat else None): each for name, each in evidence.items()}
    )


def test_layers_hold_what_ns_and_nu_are_the_means_of():
    first, second = layers(store_of(neuron_profile=PROFILE, neurons=CLEAN, adversarial_neurons=ATTACKED), LINF)
    assert (first.name, first.neurons, first.dead) == ("conv", 2, 1) and (second.neurons, second.dead) == (1, 0)
    assert (first.sensitivity, second.sensitivity) == pytest.approx((0.4, 0.5))
    assert (first.sensitivity_absolute, second.sensitivity_absolute) == pytest.approx((0.2, 2.0))
    assert neuron_sensitivity(adversarial_neurons=ATTACKED).value == pytest.approx(0.45)
    # (1 + 0) / 2 of variance, relative to .5 squared; the other layer is silent on these images.
    assert first.uncertainty == pytest.approx(2.0) and second.uncertainty is None
    assert (first.uncertainty_absolute, second.uncertainty_absolute) == (0.5, 0.5)
    assert neuron_uncertainty(neurons=CLEAN).value == pytest.approx(2.0)


def test_layers_without_an_attack_or_without_a_look_inside():
    (row, _) = layers(store_of(neuron_profile=PROFILE, neurons=CLEAN), LINF)
    assert row.sensitivity is None and row.sensitivity_absolute is None and row.uncertainty is not None
    assert layers(store_of(), LINF) == ()


def test_columns_give_the_values_of_the_metrics():
    passes = {"forward_passes": np.zeros(4, dtype=int), "backward_passes": np.zeros(4, dtype=int)}
    found = columns(
        store_of(
            predictions=predictions(np.eye(4, 2), [0, 1, 0, 0]),
            boundary_distance=BoundaryDistance(
                positions=np.array([0, 2]),
                directions=100,
                distance=np.array([0.25, 0.5]),
                censored=np.array([False, True]),
                queries=np.array([9, 9]),
            ),
            boundary_steps=BoundarySteps(
                positions=np.array([1]), targets=1, distance=np.array([0.125]), censored=np.array([False]), **passes
            ),
            noise_response=NoiseResponse(
                threat=LINF,
                copies=10,
                ratio=np.array([1.0, 2.0, 0.0, 4.0]),
                answered=np.array([10, 10, 0, 9]),
                floored=np.zeros(4, dtype=int),
                **passes,
            ),
            certification=CERTIFIED,
            minimal_perturbations=MinimalPerturbations(
                searches=("FMN linf", "FMN l2", "DDN l2", "FMN l1"),
                positions=np.array([0, 1]),
                distance=np.array([[0.1, 2.0, 1.0, 4.0], [np.inf] * 4]),
                **passes,
            ),
            universal_effect=UniversalEffect(
                threat=LINF, scored=np.array([True, True, False, True]), broken=np.array([True, False, False, False]), **passes
            ),
        ),
        0,
    )
    assert found["empirical_boundary_distance"].to_pylist() == [0.25, None, 0.5, None]
    assert found["empirical_boundary_distance_censored"].to_pylist() == [False, None, True, None]
    assert found["empirical_boundary_distance_adversarial"].to_pylist() == [None, 0.125, None, None]
    assert found["empirical_noise_insensitivity/linf_8-255"].to_pylist() == [1.0, 2.0, None, 4.0]
    assert found["minimal_perturbation_l2"].to_pylist() == [1.0, None, None, None]
    assert found["universal_perturbation_success/linf_8-255"].to_pylist() == [True, False, None, False]
    radius = found["average_certified_radius"].to_pylist()
    assert radius[0] == pytest.approx(0.6158, abs=1e-4) and radius[1:] == [0.0, None, None]
    assert average_certified_radius(certification=CERTIFIED).value == pytest.approx(radius[0] / 2)
    assert found["certified_accuracy/radius_0.5"].to_pylist() == [True, False, None, None]
    assert certified_accuracy(certification=CERTIFIED, variant="radius_0.5").value == 0.5


def test_the_certified_curve_gives_the_values_of_the_metrics():
    assert certified(store_of()) is None
    assert certified(store_of(certification=replace(CERTIFIED, positions=np.array([], dtype=int)))) is None
    curve = certified(store_of(certification=CERTIFIED))
    assert [point.radius for point in curve.points] == [round(0.05 * step, 6) for step in range(13)]
    for point, radius in zip(curve.points[::2], RADII, strict=True):
        metric = certified_accuracy(certification=CERTIFIED, variant=f"radius_{radius}")
        assert (point.accuracy, point.low, point.high) == (metric.value, metric.interval.low, metric.interval.high)
    assert curve.average_radius == average_certified_radius(certification=CERTIFIED).value
    assert (curve.samples, curve.abstained, curve.right_in_noise, curve.right_clean) == (2, 0.0, 0.5, 1.0)
