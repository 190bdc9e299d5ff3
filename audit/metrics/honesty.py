"""Honesty checks: can the audit's own numbers be believed? Computed from evidence; what was not run says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from audit import statistics
from audit.errors import Undefined
from audit.evidence import (
    SURVIVED,
    UNKNOWN,
    Bools,
    Evidence,
    EvidenceKey,
    EvidenceStore,
    FisherSpectrum,
    Predictions,
    ReferenceAttack,
    Temperature,
    WorstCase,
)
from audit.metrics.adversarial import (
    average_confidence_of_adversarial_class,
    average_confidence_of_true_class,
    noise_tolerance_estimation,
)
from audit.metrics.check_texts import CHECK_TEXTS, CheckText
from audit.metrics.fisher import saturated_share
from audit.metrics.margin import MOST_ZERO_GRADIENTS
from audit.profiles import NOISE
from audit.result import CheckRecord
from audit.vocabulary import Threat

MOST_REPEAT_DIFFERENCE = 1e-4
MOST_SATURATED = 0.10
TEMPERATURE_RANGE = (0.5, 2.0)
MOST_UNKNOWN = 0.01
BEATEN_COUNT, BEATEN_SHARE = 2, 0.005
ARMS = (Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the run itself knows and no evidence holds."""

    threats: tuple[Threat, ...]
    repeat_difference: float
    outputs: str
    outputs_clear: bool
    device_asked: str
    device: str
    has_gradients: bool = True
    gradients_lost_in: tuple[str, ...] = ()
    labels_only: bool = False
    averaged: int = 1
    averaged_difference: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one check; `raised` is None when it was not run."""

    raised: bool | None
    found: str


Check = Callable[[EvidenceStore, RunFacts], Finding]


def not_run(because: str) -> Finding:
    """The check could not be made."""
    return Finding(raised=None, found=because)


def _predictions(store: EvidenceStore) -> Predictions:
    return store.get_as(Predictions, EvidenceKey(kind=Evidence.PREDICTIONS))


def _better_than_guessing(store: EvidenceStore, facts: RunFacts) -> Finding:
    predictions = _predictions(store)
    interval = statistics.proportion(int(predictions.correct.sum()), len(predictions.labels))
    chance = float(np.bincount(predictions.labels).max() / len(predictions.labels))
    return Finding(
        raised=interval.low <= chance,
        found=f"clean accuracy is at least {interval.low:.1%}, the largest class holds {chance:.1%}",
    )


def beats_white_box(white_box: WorstCase, beaten: Bools) -> bool:
    """Whether the `beaten` (n,) of the white-box survivors are too many for the white-box accuracy to be believed."""
    standing = white_box.state == SURVIVED
    count = int((standing & beaten).sum())
    return count >= BEATEN_COUNT and count > BEATEN_SHARE * int(standing.sum())


def _survivors_broken(store: EvidenceStore, facts: RunFacts, noise_only: bool) -> Finding:
    findings = []
    raised = False
    for threat in facts.threats:
        white, black = (EvidenceKey(kind=arm, threat=threat) for arm in ARMS)
        if white not in store or black not in store:
            continue
        white_box = store.get_as(WorstCase, white)
        standing = white_box.state == SURVIVED
        query_only = store.get_as(WorstCase, black)
        stages = [index for index, attack in enumerate(query_only.attacks) if not noise_only or attack.startswith(NOISE)]
        broken = np.isin(query_only.broken_by, stages)
        beaten = np.flatnonzero(standing & broken)
        raised |= beats_white_box(white_box, broken)
        ids = _predictions(store).ids[beaten]
        named = f" ({', '.join(map(str, ids[:5]))}{', …' if len(ids) > 5 else ''})" if len(ids) else ""
        findings.append(f"{threat.label}: {len(beaten)} of {int(standing.sum())} white-box survivors broken{named}")
    if not findings:
        return not_run("needs a white-box and a black-box arm under one threat")
    return Finding(raised=raised, found="; ".join(findings))


def _gradients_exist(store: EvidenceStore, facts: RunFacts) -> Finding:
    key = EvidenceKey(kind=Evidence.FISHER_SPECTRUM)
    lost = f"no useful gradient passes {', '.join(facts.gradients_lost_in)}" if facts.gradients_lost_in else ""
    if key not in store:
        return Finding(raised=True, found=lost) if lost and not facts.has_gradients else not_run("needs gradients")
    zero = store.get_as(FisherSpectrum, key).zero_gradient
    if len(zero) == 0:
        return not_run("no example entered the Fisher evidence")
    words = f"{zero.mean():.1%} of {len(zero)} examples have zero gradients"
    return Finding(raised=float(zero.mean()) > MOST_ZERO_GRADIENTS, found=f"{words}; {lost}" if lost else words)


def _repeatable(store: EvidenceStore, facts: RunFacts) -> Finding:
    def words(difference: float) -> str:
        if facts.labels_only:
            return f"gave {'the same' if difference == 0 else 'different'} labels"
        return f"differ by at most {difference:.2g} in probability"

    found = f"five identical calls {words(facts.repeat_difference)}"
    if facts.averaged > 1:
        found += f"; the mean of {facts.averaged} calls was audited, and two such means {words(facts.averaged_difference)}"
    # Written so that a difference that is no number raises it too.
    return Finding(raised=not facts.repeat_difference <= MOST_REPEAT_DIFFERENCE, found=found)


def _outputs_clear(store: EvidenceStore, facts: RunFacts) -> Finding:
    return Finding(raised=not facts.outputs_clear, found=f"the outputs are {facts.outputs}")


def _inside_the_ball(store: EvidenceStore, facts: RunFacts) -> Finding:
    attacks = [value for value in store.values() if isinstance(value, WorstCase | ReferenceAttack) and value.threat.epsilon > 0]
    if not attacks:
        return not_run("no attack was run")
    outside = sum(int(evidence.outside.sum()) for evidence in attacks)
    attacked = sum(int(evidence.clean_correct.sum()) for evidence in attacks)
    return Finding(raised=outside > 0, found=f"{outside} of {attacked} attacked images left the ball before clipping")


def _identities(store: EvidenceStore, facts: RunFacts) -> Finding:
    found = []
    raised = False
    for threat in facts.threats:
        key = EvidenceKey(kind=Evidence.REFERENCE_ATTACK, threat=threat)
        if key not in store:
            continue
        attack = store.get_as(ReferenceAttack, key)
        try:
            adversarial = average_confidence_of_adversarial_class(reference_attack=attack).value
            true = average_confidence_of_true_class(reference_attack=attack).value
            tolerance = noise_tolerance_estimation(reference_attack=attack).value
        except Undefined:
            continue
        # Written so that a value that is no number raises it too.
        raised |= not (tolerance <= adversarial + 1e-9 and adversarial + true <= 1 + 1e-9)
        found.append(f"{threat.label}: NTE {tolerance:.3f} ≤ ACAC {adversarial:.3f}, ACAC + ACTC = {adversarial + true:.3f}")
    return Finding(raised=raised, found="; ".join(found)) if found else not_run("no reference attack succeeded")


def _not_saturated(store: EvidenceStore, facts: RunFacts) -> Finding:
    predictions = _predictions(store)
    if predictions.no_scores is not None:
        return not_run(predictions.no_scores)
    saturated = saturated_share(predictions=predictions).value
    key = EvidenceKey(kind=Evidence.TEMPERATURE)
    words = f"{saturated:.1%} of the answers are above 0.999"
    if key not in store:
        return Finding(raised=saturated > MOST_SATURATED, found=words)
    fit = store.get_as(Temperature, key)
    low, high = TEMPERATURE_RANGE
    fitted = f"no temperature fits (the search ended at its bound, {fit.value:g})" if fit.at_limit else f"T = {fit.value:.2f} fits"
    return Finding(raised=saturated > MOST_SATURATED or fit.at_limit or not low <= fit.value <= high, found=f"{words}; {fitted}")


def _asked_device(store: EvidenceStore, facts: RunFacts) -> Finding:
    return Finding(
        raised=facts.device_asked == "cuda" and not facts.device.startswith("cuda"),
        found=f"asked for {facts.device_asked}, ran on {facts.device}",
    )


def _all_attacked(store: EvidenceStore, facts: RunFacts) -> Finding:
    arms = [value for value in store.values() if isinstance(value, WorstCase)]
    if not arms:
        return not_run("no attack was run")
    unknown = max(float(np.mean(arm.state == UNKNOWN)) for arm in arms)
    return Finding(raised=unknown > MOST_UNKNOWN, found=f"at most {unknown:.1%} of the examples are unknown")


_PROBE = "its probe (independent attacks, budgets and restarts on a sample of their own) is not part of this version"
_SELF_TEST = "the bundled linear model is not part of this version"
_CHECKS: dict[int, Check] = {
    1: _better_than_guessing,
    7: lambda store, facts: _survivors_broken(store, facts, noise_only=False),
    8: lambda store, facts: _survivors_broken(store, facts, noise_only=True),
    9: _gradients_exist,
    10: _repeatable,
    11: _outputs_clear,
    12: _inside_the_ball,
    13: lambda store, facts: not_run(_SELF_TEST),
    14: _identities,
    15: _not_saturated,
    16: _asked_device,
    17: _all_attacked,
}


def without_probe(store: EvidenceStore, facts: RunFacts) -> Finding:
    """The checks that need independent attacks, budgets and restarts on a sample of their own."""
    return not_run(_PROBE)


# Every check in order, with its words.
CHECKS: tuple[tuple[CheckText, Check], ...] = tuple((text, _CHECKS.get(text.number, without_probe)) for text in CHECK_TEXTS)


def check_record(text: CheckText, finding: Finding) -> CheckRecord:
    """One check as the report tells it."""
    return CheckRecord(
        number=text.number,
        title=text.title,
        status="not_run" if finding.raised is None else ("warn" if finding.raised else "pass"),
        found=finding.found,
        raised_if=text.raised_if,
        means=text.means,
        do=text.do,
    )
