"""Collectors: one top-level, picklable function per kind of evidence, run on one chunk of examples at a time.

`collect(classifier, chunk, settings, needed, threat)` returns the chunk's rows. `needed` holds the same rows of the evidence the
collector needs (and whole fits); `threat` is None where the evidence does not depend on one. A row's numbers depend on its
example only, never on the chunk. `COLLECTORS` and `FITS` declare the graph, besides what a reference model gave; `why_not` says in
words what it does not support.
"""

from __future__ import annotations

from collections.abc import Mapping

from audit.collect import (
    accuracy_epsilon,
    adversarial_neurons,
    architecture_bound,
    boundary,
    certification,
    corruptions,
    fisher_estimate,
    fisher_spectrum,
    gradient_probe,
    minimal_perturbations,
    neurons,
    noise_response,
    predictions,
    probe,
    reference_attack,
    sequences,
    universal_perturbation,
    worst_case,
)
from audit.collect.gradient_health import fit_gradient_health
from audit.collect.nodes import Beside as Beside
from audit.collect.nodes import Collect as Collect
from audit.collect.nodes import Collector as Collector
from audit.collect.nodes import CollectTwo as CollectTwo
from audit.collect.nodes import Fit as Fit
from audit.collect.nodes import FitNode as FitNode
from audit.evidence import OF_REFERENCE, Evidence, EvidenceKey, EvidenceStore, Predictions, Temperature
from audit.fisher.temperature import fit_temperature
from audit.vocabulary import Capability, Threat


def fit_clean_temperature(needed: EvidenceStore, threat: Threat | None) -> Temperature:
    """The temperature of the merged clean predictions."""
    clean = needed.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))
    return fit_temperature(clean.logits, clean.labels)


_SEARCHES_READ = frozenset({"seed", "profile.linf", "profile.l2", "profile.l1"})
_CLEAN = frozenset({Evidence.PREDICTIONS})
_LABELS = frozenset({Capability.LABELS})
_SCORES = frozenset({Capability.SCORES})
_GRADIENTS = frozenset({Capability.SCORES, Capability.GRADIENTS})
_ACTIVATIONS = frozenset({Capability.ACTIVATIONS})
_ATTACK_READ = frozenset({"seed", "profile.reference_steps", "profile.reference_queries"})

COLLECTORS: Mapping[Evidence, Collector] = {
    row.kind: row
    for row in (
        Collector(
            kind=Evidence.PREDICTIONS,
            capabilities=_LABELS,
            needs=frozenset(),
            collect=predictions.collect,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.PROBE,
            capabilities=_SCORES,
            needs=frozenset({Evidence.PROBE_SAMPLE}),
            collect=probe.collect,
            reads=frozenset({"seed"}),
        ),
        Collector(
            kind=Evidence.GRADIENT_PROBE,
            capabilities=_GRADIENTS,
            needs=frozenset({Evidence.PROBE_SAMPLE, Evidence.PROBE}),
            collect=gradient_probe.collect,
            reads=frozenset({"seed"}),
        ),
        Collector(
            kind=Evidence.NEURON_PROFILE,
            capabilities=_ACTIVATIONS | {Capability.PROFILE_DATA},
            needs=frozenset(),
            collect=neurons.collect_profile,
            reads=frozenset({"layers"}),
        ),
        Collector(
            kind=Evidence.NEURONS,
            capabilities=_ACTIVATIONS,
            needs=frozenset({Evidence.NEURON_PROFILE}),
            collect=neurons.collect,
            reads=frozenset({"layers", "block_rows"}),
        ),
        Collector(
            kind=Evidence.REFERENCE_ATTACK,
            capabilities=_SCORES,
            needs=_CLEAN,
            collect=reference_attack.collect,
            reads=_ATTACK_READ,
            beside=Beside(kind=Evidence.ADVERSARIAL_NEURONS, collect=adversarial_neurons.beside_attack),
        ),
        Collector(
            kind=Evidence.ADVERSARIAL_NEURONS,
            capabilities=_SCORES | _ACTIVATIONS,
            needs=_CLEAN | {Evidence.NEURON_PROFILE},
            collect=adversarial_neurons.collect,
            reads=_ATTACK_READ | {"layers"},
        ),
        Collector(
            kind=Evidence.WORST_CASE_WHITE_BOX,
            capabilities=_GRADIENTS,
            needs=_CLEAN | {Evidence.GRADIENT_HEALTH},
            collect=worst_case.collect_white_box,
            reads=_SEARCHES_READ | {"profile.escalation", "shown_failures", "keep_images"},
        ),
        Collector(
            kind=Evidence.WORST_CASE_BLACK_BOX,
            capabilities=_LABELS,
            needs=_CLEAN,
            collect=worst_case.collect_black_box,
            reads=frozenset(
                {"seed", "profile.score_based", "profile.label_only", "profile.nearest", "shown_failures", "keep_images"}
            ),
        ),
        Collector(
            kind=Evidence.ACCURACY_EPSILON,
            capabilities=_LABELS,
            needs=_CLEAN | {Evidence.WORST_CASE_WHITE_BOX},
            needs_without_gradients=_CLEAN | {Evidence.WORST_CASE_BLACK_BOX},
            collect=accuracy_epsilon.collect,
            reads=_SEARCHES_READ | {"profile.curve", "profile.curve_stages", "profile.curve_queries"},
        ),
        Collector(
            kind=Evidence.FISHER_SPECTRUM,
            capabilities=_GRADIENTS,
            needs=_CLEAN | {Evidence.TEMPERATURE},
            collect=fisher_spectrum.collect,
            reads=frozenset({"seed", "profile.fisher_samples", "keep_images"}),
        ),
        Collector(
            kind=Evidence.FISHER_ESTIMATE,
            capabilities=_SCORES,
            needs=_CLEAN | {Evidence.TEMPERATURE},
            collect=fisher_estimate.collect,
            reads=frozenset({"seed", "profile.fisher_samples", "profile.fisher_directions"}),
        ),
        Collector(
            kind=Evidence.ARCHITECTURE_BOUND,
            capabilities=_GRADIENTS,
            needs=frozenset(),
            collect=architecture_bound.collect,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.BOUNDARY_DISTANCE,
            capabilities=_LABELS,
            needs=_CLEAN,
            collect=boundary.collect_distance,
            reads=frozenset({"seed", "profile.boundary_samples"}),
        ),
        Collector(
            kind=Evidence.BOUNDARY_STEPS,
            capabilities=_GRADIENTS,
            needs=frozenset({Evidence.PROBE_SAMPLE}),
            collect=boundary.collect_steps,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.NOISE_RESPONSE,
            capabilities=_SCORES,
            needs=_CLEAN,
            collect=noise_response.collect,
            reads=frozenset({"seed"}),
        ),
        Collector(
            kind=Evidence.CERTIFICATION,
            capabilities=_LABELS,
            needs=_CLEAN,
            collect=certification.collect,
            reads=frozenset({"seed", "profile.certified_samples"}),
        ),
        Collector(
            kind=Evidence.MINIMAL_PERTURBATIONS,
            capabilities=_GRADIENTS,
            needs=_CLEAN,
            collect=minimal_perturbations.collect,
            reads=frozenset({"profile.minimal_samples"}),
        ),
        Collector(
            kind=Evidence.UNIVERSAL_PERTURBATION,
            capabilities=_GRADIENTS | {Capability.PROFILE_DATA},
            needs=frozenset(),
            collect=universal_perturbation.collect,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.UNIVERSAL_EFFECT,
            capabilities=_GRADIENTS,
            needs=_CLEAN | {Evidence.UNIVERSAL_PERTURBATION},
            collect=universal_perturbation.collect_effect,
            reads=frozenset(),
        ),
        Collector(
            kind=Evidence.CORRUPTIONS,
            capabilities=_LABELS,
            needs=frozenset(),
            collect=corruptions.collect,
            reads=frozenset({"seed", "profile.corruption_samples"}),
        ),
        Collector(
            kind=Evidence.SEQUENCES,
            capabilities=_LABELS,
            needs=frozenset(),
            collect=sequences.collect,
            reads=frozenset({"seed", "profile.sequence_samples"}),
        ),
    )
}

FITS: Mapping[Evidence, FitNode] = {
    row.kind: row
    for row in (
        FitNode(kind=Evidence.TEMPERATURE, capabilities=_SCORES, needs=_CLEAN, fit=fit_clean_temperature),
        FitNode(kind=Evidence.PROBE_SAMPLE, capabilities=frozenset(), needs=_CLEAN, fit=probe.fit_probe_sample),
        FitNode(
            kind=Evidence.GRADIENT_HEALTH,
            capabilities=_GRADIENTS,
            needs=frozenset({Evidence.GRADIENT_PROBE}),
            fit=fit_gradient_health,
        ),
    )
}


def why_not(kind: Evidence, lacks: Mapping[Capability, str]) -> str | None:
    """Why this evidence cannot be gathered from a classifier with these `lacks`; None when it can.

    >>> why_not(Evidence.WORST_CASE_WHITE_BOX, {Capability.GRADIENTS: "ONNX Runtime has no backward pass"})
    'ONNX Runtime has no backward pass'
    """
    if kind in OF_REFERENCE:
        return lacks.get(Capability.REFERENCE)
    node = FITS[kind] if kind in FITS else COLLECTORS[kind]
    missing = next((capability for capability in sorted(node.capabilities) if capability in lacks), None)
    if missing is not None:
        return lacks[missing]
    needs = node.needs if isinstance(node, FitNode) else node.needs_of(lacks)
    return next((why for need in sorted(needs) if (why := why_not(need, lacks))), None)
