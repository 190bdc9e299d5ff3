"""Neuron coverage: which parts of the neurons' ranges a set of images reaches (Ma et al. 2018).

It describes the test data, not the model's robustness: more images and stranger images cover more. Read on the clean sample, on the
images of the reference attack, and on both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from audit.errors import Undefined
from audit.evidence import AdversarialNeurons, Bools, NeuronProfile, Neurons
from audit.evidence.neurons import SECTIONS, Bits
from audit.metrics.neurons import list_of
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "Ma et al. 2018, DeepGauge (arXiv 1803.07519)"
NOT_ROBUSTNESS = "describes the test data, not the model's robustness"
VARIANTS = ("clean", "adversarial", "union")

_covering = partial(
    metric,
    family=Family.NEURONS,
    better=Better.NEITHER,
    unit=Unit.SHARE,
    source=SOURCE,
    variants=VARIANTS,
    clean_variants=("clean",),
)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What the images of one variant met: `images` of them against the profile, `watched` in all."""

    images: int
    watched: int
    sections: Bits
    below: Bools
    above: Bools
    top: Bools


def _seen(neurons: Neurons, adversarial: AdversarialNeurons | None, variant: str) -> _Seen:
    clean = _Seen(
        images=neurons.scored,
        watched=int(neurons.counts.sum()),
        sections=neurons.sections,
        below=neurons.below,
        above=neurons.above,
        top=neurons.top,
    )
    if variant == "clean":
        return clean
    assert adversarial is not None, "images of an attack belong to a threat"
    attacked = _Seen(
        images=adversarial.scored,
        watched=int(adversarial.attacked.sum()),
        sections=adversarial.sections,
        below=adversarial.below,
        above=adversarial.above,
        top=adversarial.top,
    )
    if not attacked.watched:
        raise Undefined("no example was right on the clean image, so there was nothing to attack")
    if variant == "adversarial":
        return attacked
    return _Seen(
        images=clean.images + attacked.images,
        watched=clean.watched + attacked.watched,
        sections=clean.sections | attacked.sections,
        below=clean.below | attacked.below,
        above=clean.above | attacked.above,
        top=clean.top | attacked.top,
    )


def _of_range(neurons: Neurons, profile: NeuronProfile, covered: int, possible: int, seen: _Seen) -> Estimate:
    """A share of what can be covered, of neurons with a profiled range."""
    if not seen.images:
        raise Undefined("every image of this set is one of those that the ranges were taken from")
    dead = int(profile.dead.sum())
    counted = f"{dead} dead in the profile and never covered" if dead else "none dead in the profile"
    return _share(neurons, covered, possible, seen.images, (f"{counted}; ranges from {profile.source}",))


def _share(neurons: Neurons, covered: int, possible: int, images: int, notes: tuple[str, ...]) -> Estimate:
    return Estimate(
        value=covered / possible,
        samples=images,
        interval=None,
        why_no_interval="coverage describes this sample",
        notes=(NOT_ROBUSTNESS, list_of(neurons.layers, neurons.units), *notes),
    )


@_covering(symbol="KMNC", paper_row="KMNC")
def k_multisection_neuron_coverage(
    neurons: Neurons, neuron_profile: NeuronProfile, adversarial_neurons: AdversarialNeurons | None, variant: str
) -> Estimate:
    """k-multisection neuron coverage.

    The range of each neuron on the profile data, cut into k = 1000 equal sections: sections that some image meets / (k * neurons).
    Neurons that never move in the profile are dead: they count in the denominator and are never covered. Describes the test data,
    not the model's robustness; n images can meet at most n of the sections of a neuron.
    Undefined when: there was nothing to attack, or every image belongs to the profile.

    >>> from audit.metrics.coverage import k_multisection_neuron_coverage
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> bits = np.packbits(np.arange(1000)[None] < 250, axis=1)
    >>> clean = SimpleNamespace(sections=bits, scored=300, counts=np.array([300]), below=None, above=None, top=None,
    ...                         layers=("relu",), units=np.array([1]))
    >>> profile = SimpleNamespace(dead=np.array([False]), source="other images")
    >>> k_multisection_neuron_coverage(neurons=clean, neuron_profile=profile, adversarial_neurons=None, variant="clean").value
    0.25
    """
    seen = _seen(neurons, adversarial_neurons, variant)
    covered = int(np.bitwise_count(seen.sections).sum())
    return _of_range(neurons, neuron_profile, covered, SECTIONS * len(seen.sections), seen)


@_covering(symbol="NBC", paper_row="NBC")
def neuron_boundary_coverage(
    neurons: Neurons, neuron_profile: NeuronProfile, adversarial_neurons: AdversarialNeurons | None, variant: str
) -> Estimate:
    """Neuron boundary coverage.

    (neurons that some image drives below their range on the profile data + neurons driven above it) / (2 * neurons). Dead neurons
    count in the denominator and are never covered. Describes the test data, not the model's robustness.
    Undefined when: there was nothing to attack, or every image belongs to the profile.
    """
    seen = _seen(neurons, adversarial_neurons, variant)
    covered = int(seen.below.sum()) + int(seen.above.sum())
    return _of_range(neurons, neuron_profile, covered, 2 * len(seen.above), seen)


@_covering(symbol="SNAC", paper_row="SNAC")
def strong_neuron_activation_coverage(
    neurons: Neurons, neuron_profile: NeuronProfile, adversarial_neurons: AdversarialNeurons | None, variant: str
) -> Estimate:
    """Strong neuron activation coverage.

    Neurons that some image drives above their range on the profile data / neurons. Dead neurons count in the denominator and are
    never covered. Describes the test data, not the model's robustness.
    Undefined when: there was nothing to attack, or every image belongs to the profile.
    """
    seen = _seen(neurons, adversarial_neurons, variant)
    return _of_range(neurons, neuron_profile, int(seen.above.sum()), len(seen.above), seen)


@_covering(symbol="TKNC")
def top_k_neuron_coverage(neurons: Neurons, adversarial_neurons: AdversarialNeurons | None, variant: str) -> Estimate:
    """Top-k neuron coverage.

    Neurons that are among the k = 1 most active of their layer for some image / neurons. A tie at the edge covers none, so that a
    layer of equal neurons has no most active one. Describes the test data, not the model's robustness.
    Undefined when: there was nothing to attack.
    """
    seen = _seen(neurons, adversarial_neurons, variant)
    return _share(neurons, int(seen.top.sum()), len(seen.top), seen.watched, ())
