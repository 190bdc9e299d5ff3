"""Neuron sensitivity and uncertainty: how much inner layers move under an attack, and how much they vary over clean images."""

from __future__ import annotations

import hashlib

import numpy as np

from audit import statistics
from audit.errors import Undefined
from audit.evidence import AdversarialNeurons, Floats, Ints, Neurons
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

GUO = "Guo et al. 2021/2023 (arXiv 2101.09617)"


def list_of(layers: tuple[str, ...], units: Ints) -> str:
    """How many neurons there are, in how many layers, and a digest of their list.

    >>> list_of(("conv", "head"), np.array([8, 10]))
    '18 neurons in 2 layers (list sha256 27db4ee100dc)'
    """
    text = "\n".join(f"{name}:{count}" for name, count in zip(layers, units.tolist(), strict=True))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{int(units.sum())} neurons in {len(layers)} {'layer' if len(layers) == 1 else 'layers'} (list sha256 {digest})"


def sensitivity_by_layer(evidence: AdversarialNeurons) -> tuple[Floats, Floats]:
    """Mean |a(x') - a(x)| of each layer (L,), absolute and relative to its mean |a(x)|; NaN where the layer is silent."""
    absolute = evidence.difference[evidence.attacked].mean(axis=0)
    return absolute, _relative(absolute, evidence.magnitude[evidence.attacked].mean(axis=0))


def uncertainty_by_layer(evidence: Neurons) -> tuple[Floats, Floats]:
    """Mean variance of each layer's neurons (L,), absolute and relative to its squared mean |a|; NaN where the layer is silent."""
    count, _, squares, magnitude = evidence.moments()
    parts = np.split(squares / count, np.cumsum(evidence.units)[:-1])
    absolute = np.array([part.mean() for part in parts])
    return absolute, _relative(absolute, magnitude**2)


def _relative(values: Floats, scale: Floats) -> Floats:
    found = np.full(len(values), np.nan)
    np.divide(values, scale, out=found, where=scale > 0)
    return found


def _notes(layers: tuple[str, ...], units: Ints, relative: Floats) -> tuple[str, ...]:
    silent = int(np.isnan(relative).sum())
    left_out = (f"{silent} layers left out: they are silent on all images",) if silent else ()
    return (list_of(layers, units), *left_out)


@metric(symbol="NS", family=Family.NEURONS, better=Better.LOWER, unit=Unit.RATIO, source=GUO, paper_row="NS")
def neuron_sensitivity(adversarial_neurons: AdversarialNeurons) -> Estimate:
    """Neuron sensitivity.

    Per neuron the mean of |a(x) - a(x')| over clean-correct images x and what the reference attack makes of them; per layer the
    mean over its neurons, relative to the layer's mean |a(x)|; then the mean over layers. 0.1: the attack moves activations by a
    tenth of their size. The report's table of layers has it per layer, absolute too.
    Undefined when: no example was right on the clean image, or every layer is silent.
    Differs from the source in: each layer is relative to its own size, without which the largest layer decides alone.

    >>> from audit.metrics.neurons import neuron_sensitivity
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> pairs = SimpleNamespace(attacked=np.array([True, True]), layers=("a", "b"), units=np.array([3, 2]),
    ...                         difference=np.array([[0.1, 2.0], [0.3, 4.0]]), magnitude=np.array([[1.0, 6.0], [1.0, 6.0]]))
    >>> round(neuron_sensitivity(adversarial_neurons=pairs).value, 12)
    0.35
    """
    evidence = adversarial_neurons
    attacked = int(evidence.attacked.sum())
    if not attacked:
        raise Undefined("no example was right on the clean image, so there was nothing to attack")
    _, relative = sensitivity_by_layer(evidence)
    spoken = ~np.isnan(relative)
    if not spoken.any():
        raise Undefined("every layer is silent on all images")
    moved, size = evidence.difference[evidence.attacked][:, spoken], evidence.magnitude[evidence.attacked][:, spoken]
    interval = statistics.over_examples(attacked, lambda weights: ((weights @ moved) / (weights @ size)).mean(axis=1))
    return Estimate(
        value=float(relative[spoken].mean()),
        samples=attacked,
        interval=interval,
        why_no_interval=None if interval else statistics.TOO_FEW,
        notes=_notes(evidence.layers, evidence.units, relative),
    )


@metric(symbol="NU", family=Family.NEURONS, better=Better.NEITHER, unit=Unit.RATIO, source=GUO, paper_row="NU")
def neuron_uncertainty(neurons: Neurons) -> Estimate:
    """Neuron uncertainty.

    Per neuron the variance of a(x) over the clean images; per layer the mean over its neurons, relative to the squared
    mean |a(x)| of the layer; then the mean over layers. The report's table of layers has it per layer, absolute too.
    Undefined when: there is one image only, or every layer is silent.
    Differs from the source in: each layer is relative to its own size, without which the largest layer decides alone.
    """
    images = int(neurons.counts.sum())
    if images < 2:
        raise Undefined("one image does not vary")
    _, relative = uncertainty_by_layer(neurons)
    spoken = ~np.isnan(relative)
    if not spoken.any():
        raise Undefined("every layer is silent on all images")
    return Estimate(
        value=float(relative[spoken].mean()),
        samples=images,
        interval=None,
        why_no_interval="a variance over these images",
        notes=_notes(neurons.layers, neurons.units, relative),
    )
