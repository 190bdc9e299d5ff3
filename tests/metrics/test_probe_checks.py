"""Checks 2 to 9 on a probe written by hand: each at its threshold, each alone, and the reason of each that cannot run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from evidence_by_hand import LINF, gradient_probe, predictions, probe, spectrum

from audit.evidence import PER_THREAT, Evidence, EvidenceKey, EvidenceStore
from audit.metrics.findings import RunFacts
from audit.metrics.honesty import CHECKS
from audit.vocabulary import Threat

FACTS = RunFacts(threats=(LINF,), repeat_difference=0.0, outputs="logits", outputs_clear=True, device_asked="auto", device="cpu")
USUAL = (10, 40, 80, 100)


def store(threat=LINF, *, n: int = 100, labels=None, **evidence) -> EvidenceStore:
    labels = np.arange(n) % 10 if labels is None else labels
    kinds = {Evidence(name): value for name, value in evidence.items()} | {
        Evidence.PREDICTIONS: predictions(np.eye(10)[labels], labels)
    }
    return EvidenceStore({EvidenceKey(kind=k, threat=threat if k in PER_THREAT else None): value for k, value in kinds.items()})


def found(number: int, evidence: EvidenceStore, facts: RunFacts = FACTS):
    return CHECKS[number - 1][1](evidence, facts)


def of_probe(broken=USUAL, noise=(), n: int = 100, **columns) -> EvidenceStore:
    columns.setdefault("doubled", range(broken[1]))
    return store(n=n, probe=probe(broken, noise, n=n), gradient_probe=gradient_probe(n, **columns))


def test_a_sound_probe_raises_nothing():
    evidence = of_probe(single_step=range(30), restarted=range(40))
    assert {number: found(number, evidence).raised for number in range(2, 10)} == dict.fromkeys(range(2, 10), False)


@pytest.mark.parametrize(("broken", "raised"), [(USUAL, False), ((40, 40, 40, 100), False), ((41, 40, 80, 100), True)])
def test_2_the_same_attack_never_breaks_less_with_more_budget(broken, raised):
    assert found(2, of_probe(broken)).raised is raised


def test_2_says_the_counts_and_the_budgets():
    assert "PGD-50 leaves 90, 60, 20, 0 of 100 standing at epsilon 4/255, 8/255, 16/255, 127.5/255" in found(2, of_probe()).found


@pytest.mark.parametrize(("standing", "raised"), [(0, False), (10, False), (11, True)])
def test_3_allows_as_many_as_the_largest_class(standing, raised):
    assert found(3, of_probe((10, 40, 80, 100 - standing))).raised is raised


def test_3_needs_two_labels():
    evidence = store(labels=np.zeros(100, dtype=int), probe=probe((0, 0, 0, 0)))
    assert found(3, evidence).raised is None and "one label" in found(3, evidence).found


@pytest.mark.parametrize(("single", "raised"), [(40, False), (41, True)])
def test_4_wants_many_steps_as_strong_as_one(single, raised):
    assert found(4, of_probe(single_step=range(single))).raised is raised


@pytest.mark.parametrize(("doubled", "raised"), [(38, True), (39, False), (41, False), (42, True)])
def test_5_allows_one_point_either_way(doubled, raised):
    assert found(5, of_probe(doubled=range(doubled))).raised is raised


@pytest.mark.parametrize(("more", "raised"), [(0, False), (1, False), (3, False), (4, True)])
def test_6_counts_what_either_start_breaks(more, raised):
    """The second start breaks other examples, and fewer of them."""
    assert found(6, of_probe(restarted=range(40, 40 + more))).raised is raised


def test_5_and_6_need_a_hundred_examples():
    few = of_probe(n=99)
    for number in (5, 6):
        assert found(number, few).raised is None and found(number, few).found == "needs 100 examples, the probe has 99"
        assert found(number, of_probe()).raised is False


@pytest.mark.parametrize(("beaten", "raised"), [((), False), ((70,), False), ((70, 71), True)])
def test_7_and_8_need_two_examples_and_name_them(beaten, raised):
    queried = of_probe(queried=beaten, standing=range(60, 100))
    assert found(7, queried).raised is raised
    assert f"Square-200 breaks {len(beaten)} of 40 probe survivors" in found(7, queried).found
    noisy = of_probe(noise=(*range(5), *beaten))
    assert found(8, noisy).raised is raised and found(7, noisy).raised is False
    assert f"noise breaks {len(beaten)} of 60 probe survivors" in found(8, noisy).found
    if beaten:
        assert "(x70" in found(7, queried).found and "(x70" in found(8, noisy).found


def test_7_leaves_out_a_norm_without_such_an_attack():
    assert found(7, of_probe(queries=0)).raised is None and found(8, of_probe(queries=0)).raised is False


@pytest.mark.parametrize(("zero", "raised"), [(5, False), (6, True)])
def test_9_reads_the_probe_and_the_fisher_evidence(zero, raised):
    assert found(9, of_probe(zero_gradient=range(zero))).raised is raised
    sound = of_probe()
    fisher = EvidenceKey(kind=Evidence.FISHER_SPECTRUM)
    both = sound.with_item(fisher, spectrum(np.ones(100), zero=np.arange(100) < zero))
    assert found(9, both).raised is raised
    assert found(9, both).found == f"0.0% of the probe's 100 examples and {zero}.0% of 100 examples have zero gradients"


def test_what_raises_a_check_comes_first():
    other = Threat.parse("l2:0.5")
    evidence = of_probe()
    for threat, broken in ((other, (50, 40, 80, 100)),):
        for key, value in store(threat, probe=probe(broken, threat=threat, epsilons=(0.25, 0.5, 1.0, 14.0))).items():
            evidence = evidence.with_item(key, value)
    finding = found(2, evidence, replace(FACTS, threats=(LINF, other)))
    assert finding.raised and finding.found.startswith("L2 0.5: PGD-50 leaves 50, 60, 20, 0")


def test_a_model_that_can_only_be_asked_runs_what_it_can_and_says_why_not_the_rest():
    no_gradients = {EvidenceKey(kind=Evidence.GRADIENT_PROBE, threat=LINF): "it has no backward pass"}
    facts = replace(FACTS, has_gradients=False, unavailable=no_gradients)
    asked = store(probe=probe((10, 100), epsilons=(LINF.epsilon, 0.5)))
    assert found(2, asked, facts).raised is False and found(3, asked, facts).raised is False
    for number in (4, 5, 6):
        assert (found(number, asked, facts).raised, found(number, asked, facts).found) == (None, "it has no backward pass")
    one = store(probe=probe((10,), epsilons=(LINF.epsilon,)))
    assert found(2, one, facts).found == "there is no second budget to compare with"


@pytest.mark.parametrize("number", [2, 3, 4, 5, 6])
def test_without_a_probe_the_reason_is_given(number):
    random = {EvidenceKey(kind=kind, threat=LINF): "it answers at random" for kind in (Evidence.PROBE, Evidence.GRADIENT_PROBE)}
    assert found(number, store(), replace(FACTS, unavailable=random)).found == "it answers at random"
    assert found(number, store(), FACTS).raised is None
    nothing = Threat.parse("linf:0")
    assert found(number, store(), replace(FACTS, threats=(nothing,))).found == "at epsilon 0 there is nothing to attack"
    empty = store(
        probe=replace(probe(USUAL), probed=np.zeros(100, dtype=bool)),
        gradient_probe=replace(gradient_probe(), probed=np.zeros(100, dtype=bool)),
    )
    assert "no example of the probe's is classified correctly" in found(number, empty).found
