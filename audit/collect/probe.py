"""The probe's attacks: one attack at several budgets and random noise, on a few examples, each as if it were the only one."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch

from audit.attacks.pgd import pgd
from audit.attacks.random_noise import random_noise
from audit.attacks.run import Batch, Oracle, verify
from audit.attacks.square import square
from audit.attacks.stages import Attack
from audit.data import Chunk
from audit.evidence import Bools, Evidence, EvidenceKey, EvidenceStore, Predictions, Probe, ProbeSample
from audit.models import Classifier
from audit.settings import Settings
from audit.vocabulary import Capability, Norm, Threat

# The fewest for which one example is not more than the point by which checks 5 and 6 judge.
PROBE_EXAMPLES = 100
# Measured on six 28x28 networks, standard, adversarially and noise trained, Linf and L2: twice the steps or another start break
# at most one more example of a hundred, as they do with 100 steps.
PROBE_STEPS = 50
PROBE_QUERIES = 200
NOISE_DRAWS = 10
_LOSS = "scaled_probability_margin"


def fit_probe_sample(needed: EvidenceStore, threat: Threat | None) -> ProbeSample:
    """The first clean-correct examples in canonical order."""
    predictions = needed.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))
    return ProbeSample(positions=predictions.positions[predictions.correct][:PROBE_EXAMPLES])


def probed_rows(chunk: Chunk, needed: EvidenceStore, threat: Threat) -> Bools:
    """Which rows of the chunk the probe attacks (n,): none at epsilon 0, where there is nothing to attack."""
    sample = needed.get_as(ProbeSample, EvidenceKey(kind=Evidence.PROBE_SAMPLE))
    return np.isin(chunk.positions, sample.positions) & (threat.epsilon > 0)


def huge(norm: Norm, dimension: int) -> float:
    """The budget at which the grey image (0.5 everywhere) lies in the ball around any image of c h w = `dimension` values.

    >>> huge(Norm.LINF, 784), huge(Norm.L2, 784), huge(Norm.L1, 784)
    (0.5, 14.0, 392.0)
    """
    return 0.5 * {Norm.LINF: 1.0, Norm.L2: math.sqrt(dimension), Norm.L1: float(dimension)}[norm]


def budgets(threat: Threat, dimension: int, *, gradients: bool) -> tuple[float, ...]:
    """The probe's epsilons, ascending: half, own, double and huge; own and huge where the model can only be asked.

    >>> budgets(Threat.parse("linf:0.25"), 784, gradients=True)
    (0.125, 0.25, 0.5)
    """
    own, most = threat.epsilon, huge(threat.norm, dimension)
    between = {own / 2, min(2 * own, 2 * most)} if gradients else set()
    return tuple(sorted({own, most} | between))


def attack_of(seed: int, *, steps: int = PROBE_STEPS, purpose: str = "probe") -> Attack:
    """The probe's attack on a model with gradients; another purpose is another start."""
    return partial(pgd, loss=_LOSS, steps=steps, seed=seed, purpose=purpose, stop_early=True)


def square_of(seed: int) -> Attack:
    """The probe's attack that only asks."""
    return partial(square, queries=PROBE_QUERIES, seed=seed, purpose="probe", stop_early=True)


def collect(classifier: Classifier, chunk: Chunk, settings: Settings, needed: EvidenceStore, threat: Threat | None) -> Probe:
    """PGD with gradients and Square without at every budget, and noise; each finds all of the probe's examples unbroken."""
    assert threat is not None, "a probe belongs to a threat"
    gradients, seed = Capability.GRADIENTS not in classifier.lacks, settings.seed
    epsilons = budgets(threat, int(np.prod(chunk.images.shape[1:])), gradients=gradients)
    probed = probed_rows(chunk, needed, threat)
    oracle = Oracle(classifier, len(chunk.labels))
    batch = Batch.of(chunk, classifier.device).take(torch.as_tensor(np.flatnonzero(probed), device=classifier.device))

    def broken(attack: Attack, at: Threat) -> Bools:
        found = np.zeros(len(probed), dtype=np.bool_)
        if len(batch):
            found[probed] = verify(oracle, batch, attack(oracle, batch, at), at).broken
        return found

    attack = attack_of(seed) if gradients else square_of(seed)
    return Probe(
        threat=threat,
        attack=f"PGD-{PROBE_STEPS}" if gradients else f"Square-{PROBE_QUERIES}",
        epsilons=epsilons,
        probed=probed,
        by_epsilon=np.stack([broken(attack, threat.at(epsilon)) for epsilon in epsilons], axis=1),
        noise=broken(partial(random_noise, draws=NOISE_DRAWS, seed=seed, purpose="probe noise"), threat),
        forward_passes=oracle.forward,
        backward_passes=oracle.backward,
    )
