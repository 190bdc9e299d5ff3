"""Honesty checks: can the audit's own numbers be believed? Computed from evidence; what was not run says why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from audit import statistics
from audit.errors import Undefined
from audit.evidence import UNKNOWN, Evidence, EvidenceKey, EvidenceStore, ReferenceAttack, Temperature, WorstCase
from audit.metrics.adversarial import (
    average_confidence_of_adversarial_class,
    average_confidence_of_true_class,
    noise_tolerance_estimation,
)
from audit.metrics.check_texts import CHECK_TEXTS, CheckText
from audit.metrics.findings import Check, Finding, RunFacts, not_run, predictions_of
from audit.metrics.fisher import saturated_share
from audit.metrics.probe_checks import (
    falls_with_epsilon,
    gradients_exist,
    iterations_help,
    iterations_suffice,
    noise_does_not_beat_attacks,
    queries_do_not_beat_gradients,
    reaches_chance,
    restarts_suffice,
)
from audit.result import CheckRecord

MOST_REPEAT_DIFFERENCE = 1e-4
MOST_SATURATED = 0.10
TEMPERATURE_RANGE = (0.5, 2.0)
MOST_UNKNOWN = 0.01
MOST_OF_OPTIMUM = 1.25


def _better_than_guessing(store: EvidenceStore, facts: RunFacts) -> Finding:
    predictions = predictions_of(store)
    interval = statistics.proportion(int(predictions.correct.sum()), len(predictions.labels))
    chance = float(np.bincount(predictions.labels).max() / len(predictions.labels))
    return Finding(
        raised=interval.low <= chance,
        found=f"clean accuracy is at least {interval.low:.1%}, the largest class holds {chance:.1%}",
    )


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
    found = f"{outside} of {attacked} attacked images left the ball before clipping"
    references = [evidence for evidence in attacks if isinstance(evidence, ReferenceAttack)]
    successes = sum(int(evidence.success.sum()) for evidence in references)
    if successes:
        kept = sum(int(evidence.success_in_8_bits.sum()) for evidence in references)
        found += f"; {kept} of {successes} successes of the reference attack are successes inside the ball in 8 bits too"
    return Finding(raised=outside > 0, found=found)


def _self_test(store: EvidenceStore, facts: RunFacts) -> Finding:
    if not facts.self_test:
        return not_run("the attacks were not tested")
    worst = max(facts.self_test, key=facts.self_test.__getitem__)
    weak = [name for name, ratio in facts.self_test.items() if not ratio <= MOST_OF_OPTIMUM]
    return Finding(
        raised=bool(weak),
        found=f"{len(facts.self_test)} attacks need at most {facts.self_test[worst]:.2f} times the optimum ({worst})"
        if not weak
        else ", ".join(f"{name} needs {facts.self_test[name]:.2f} times the optimum" for name in weak),
    )


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
    predictions = predictions_of(store)
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


_CHECKS: Mapping[int, Check] = {
    1: _better_than_guessing,
    2: falls_with_epsilon,
    3: reaches_chance,
    4: iterations_help,
    5: iterations_suffice,
    6: restarts_suffice,
    7: queries_do_not_beat_gradients,
    8: noise_does_not_beat_attacks,
    9: gradients_exist,
    10: _repeatable,
    11: _outputs_clear,
    12: _inside_the_ball,
    13: _self_test,
    14: _identities,
    15: _not_saturated,
    16: _asked_device,
    17: _all_attacked,
}
# Every check in order, with its words, and the evidence that no metric asks for.
CHECKS: tuple[tuple[CheckText, Check], ...] = tuple((text, _CHECKS[text.number]) for text in CHECK_TEXTS)
CHECKED = frozenset({Evidence.PROBE, Evidence.GRADIENT_PROBE})


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
