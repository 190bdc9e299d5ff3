"""Inner layers as the report tells them: neuron sensitivity and uncertainty of each."""

from __future__ import annotations

import math

import numpy as np

from audit.evidence import AdversarialNeurons, Evidence, EvidenceKey, EvidenceStore, Floats, NeuronProfile, Neurons
from audit.metrics.neurons import sensitivity_by_layer, uncertainty_by_layer
from audit.result import LayerRow
from audit.text import printable
from audit.vocabulary import Threat


def layers(store: EvidenceStore, threat: Threat) -> tuple[LayerRow, ...]:
    """One row per layer in the order in which they run, sensitivity under the first threat; none where no layer was read."""
    clean, profiled = EvidenceKey(kind=Evidence.NEURONS), EvidenceKey(kind=Evidence.NEURON_PROFILE)
    if clean not in store or profiled not in store:
        return ()
    neurons, profile = store.get_as(Neurons, clean), store.get_as(NeuronProfile, profiled)
    varied, relatively = uncertainty_by_layer(neurons)
    moved, in_relation = _sensitivity(store, threat, len(neurons.layers))
    dead = [int(part.sum()) for part in np.split(profile.dead, np.cumsum(neurons.units)[:-1])]
    return tuple(
        LayerRow(
            name=printable(name, 80),
            neurons=int(neurons.units[place]),
            dead=dead[place],
            sensitivity=_known(in_relation[place]),
            sensitivity_absolute=_known(moved[place]),
            uncertainty=_known(relatively[place]),
            uncertainty_absolute=_known(varied[place]),
        )
        for place, name in enumerate(neurons.layers)
    )


def _sensitivity(store: EvidenceStore, threat: Threat, count: int) -> tuple[Floats, Floats]:
    key = EvidenceKey(kind=Evidence.ADVERSARIAL_NEURONS, threat=threat)
    if key in store:
        evidence = store.get_as(AdversarialNeurons, key)
        if evidence.attacked.any():
            return sensitivity_by_layer(evidence)
    return np.full(count, np.nan), np.full(count, np.nan)


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
