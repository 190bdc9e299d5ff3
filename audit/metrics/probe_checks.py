"""Checks 2 to 9: are the attacks strong enough, and do gradients lead them? They read the probe, 7 and 8 the two arms as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from audit import statistics
from audit.evidence import SURVIVED, Bools, Evidence, EvidenceKey, EvidenceStore, FisherSpectrum, GradientProbe, Probe, WorstCase
from audit.metrics.findings import Finding, RunFacts, named, not_run, predictions_of
from audit.metrics.margin import MOST_ZERO_GRADIENTS
from audit.profiles import NOISE
from audit.vocabulary import Threat

BEATEN_COUNT, BEATEN_SHARE = 2, 0.005
# Of fewer examples one alone is more than the point by which checks 5 and 6 judge.
LEAST_EXAMPLES = 100
# One point of accuracy.
MOST_CHANGED = 0.01
SIGNIFICANT = 0.05
ARMS = (Evidence.WORST_CASE_WHITE_BOX, Evidence.WORST_CASE_BLACK_BOX)


@dataclass(frozen=True, kw_only=True)
class _Probed:
    """The probe at one threat that has an example; `gradients` is None for a model that can only be asked."""

    threat: Threat
    n: int
    at: Probe
    gradients: GradientProbe | None


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What a check finds at one threat."""

    raised: bool
    found: str


def _probes(store: EvidenceStore, facts: RunFacts) -> list[_Probed]:
    found = []
    for threat in facts.threats:
        at, gradients = (EvidenceKey(kind=kind, threat=threat) for kind in (Evidence.PROBE, Evidence.GRADIENT_PROBE))
        if at in store and (n := int((probe := store.get_as(Probe, at)).probed.sum())):
            led = store.get_as(GradientProbe, gradients) if gradients in store else None
            found.append(_Probed(threat=threat, n=n, at=probe, gradients=led))
    return found


def _why_none(store: EvidenceStore, facts: RunFacts, kind: Evidence) -> Finding:
    keys = [EvidenceKey(kind=kind, threat=threat) for threat in facts.threats if threat.epsilon > 0]
    if not keys:
        return not_run("at epsilon 0 there is nothing to attack")
    missing = next((facts.unavailable[key] for key in keys if key in facts.unavailable), None)
    if missing is None and any(key in store for key in keys):
        missing = "no example of the probe's is classified correctly"
    return not_run(missing or "the probe was not made")


def _of_each(
    store: EvidenceStore, facts: RunFacts, kind: Evidence, say: Callable[[_Probed], _Said | None], otherwise: str = ""
) -> Finding:
    """What `say` finds at each threat where the probe has `kind`; where it says nothing, `otherwise`."""
    probes = [probe for probe in _probes(store, facts) if kind is Evidence.PROBE or probe.gradients is not None]
    if not probes:
        return _why_none(store, facts, kind)
    said = [
        _Said(raised=found.raised, found=f"{probe.threat.label}: {found.found}")
        for probe in probes
        if (found := say(probe)) is not None
    ]
    return _together(said) if said else not_run(otherwise)


def _together(said: list[_Said]) -> Finding:
    """What was found everywhere, what raises the check first: page one has room for the beginning."""
    ordered = sorted(said, key=lambda one: not one.raised)
    return Finding(raised=any(one.raised for one in said), found="; ".join(one.found for one in ordered))


def falls_with_epsilon(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 2."""

    def say(probed: _Probed) -> _Said | None:
        probe = probed.at
        if len(probe.epsilons) < 2:
            return None
        standing = probed.n - probe.by_epsilon.sum(axis=0)
        budgets = ", ".join(probe.threat.at(epsilon).written for epsilon in probe.epsilons)
        counts = ", ".join(map(str, standing))
        return _Said(
            raised=bool((np.diff(standing) > 0).any()),
            found=f"{probe.attack} leaves {counts} of {probed.n} standing at epsilon {budgets}",
        )

    return _of_each(store, facts, Evidence.PROBE, say, "there is no second budget to compare with")


def reaches_chance(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 3."""
    labels = predictions_of(store).labels

    def say(probed: _Probed) -> _Said | None:
        probe = probed.at
        counts = np.bincount(labels[probe.probed])
        if counts.max() == probed.n:
            return None
        standing, largest = probed.n - int(probe.by_epsilon[:, -1].sum()), int(counts.max())
        return _Said(
            raised=standing > largest,
            found=f"{standing} of {probed.n} stand at epsilon {probe.threat.at(probe.epsilons[-1]).written}, "
            f"the largest class has {largest}",
        )

    return _of_each(store, facts, Evidence.PROBE, say, "the probe's examples have one label, so nothing is above chance")


def iterations_help(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 4."""

    def say(probed: _Probed) -> _Said | None:
        if probed.gradients is None:
            return None
        single, iterative = int(probed.gradients.single_step.sum()), int(probed.at.broken.sum())
        return _Said(raised=single > iterative, found=f"FGSM breaks {single}, {probed.at.attack} {iterative} of {probed.n}")

    return _of_each(store, facts, Evidence.GRADIENT_PROBE, say)


def _changes_little(
    store: EvidenceStore,
    facts: RunFacts,
    words: str,
    changed: Callable[[Bools, GradientProbe], Bools],
    too_many: Callable[[int, int], bool],
) -> Finding:
    def say(probed: _Probed) -> _Said | None:
        if probed.gradients is None or probed.n < LEAST_EXAMPLES:
            return None
        once = probed.at.broken
        before, after = int(once.sum()), int(changed(once, probed.gradients).sum())
        return _Said(
            raised=too_many(abs(after - before), probed.n),
            found=f"{probed.at.attack} breaks {before} of {probed.n}, {words} {after}",
        )

    few = max((probe.n for probe in _probes(store, facts)), default=0)
    return _of_each(store, facts, Evidence.GRADIENT_PROBE, say, f"needs {LEAST_EXAMPLES} examples, the probe has {few}")


def iterations_suffice(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 5."""
    return _changes_little(
        store,
        facts,
        "with twice the iterations",
        lambda once, gradients: gradients.doubled,
        lambda changed, n: changed > MOST_CHANGED * n,
    )


def restarts_suffice(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 6.

    Which examples a start breaks is partly luck: on ordinary networks a second one broke up to 3 more of 100, at budgets that break
    half of them. So the share has to be above one point by more than chance, which is 4 of 100.
    """
    return _changes_little(
        store,
        facts,
        "with a second start",
        lambda once, gradients: once | gradients.restarted,
        lambda changed, n: statistics.exceeds(changed, n, MOST_CHANGED) < SIGNIFICANT,
    )


def beats_white_box(white_box: WorstCase, beaten: Bools) -> bool:
    """Whether the `beaten` (n,) of the white-box survivors are too many for the white-box accuracy to be believed."""
    standing = white_box.state == SURVIVED
    return _too_many(int((standing & beaten).sum()), int(standing.sum()))


def _too_many(count: int, standing: int) -> bool:
    return count >= BEATEN_COUNT and count > BEATEN_SHARE * standing


def _in_the_arms(store: EvidenceStore, facts: RunFacts, *, noise_only: bool) -> list[_Said]:
    """What of the white-box arm's survivors the black-box arm breaks, or its random noise alone."""
    said = []
    for threat in facts.threats:
        white, black = (EvidenceKey(kind=arm, threat=threat) for arm in ARMS)
        if white not in store or black not in store:
            continue
        white_box = store.get_as(WorstCase, white)
        query_only = store.get_as(WorstCase, black)
        stages = [index for index, attack in enumerate(query_only.attacks) if not noise_only or attack.startswith(NOISE)]
        broken = np.isin(query_only.broken_by, stages)
        beaten, standing = (white_box.state == SURVIVED) & broken, int((white_box.state == SURVIVED).sum())
        found = f"{threat.label}: {int(beaten.sum())} of {standing} white-box survivors broken{named(store, beaten)}"
        said.append(_Said(raised=beats_white_box(white_box, broken), found=found))
    return said


def _in_the_probe(store: EvidenceStore, facts: RunFacts, *, noise_only: bool) -> list[_Said]:
    """The same of the probe's examples: noise against the iterative attack, Square against all gradient attacks."""
    said = []
    for probed in _probes(store, facts):
        if probed.gradients is None or not (noise_only or probed.gradients.queries):
            continue
        if noise_only:
            standing, beaten, how = probed.at.probed & ~probed.at.broken, probed.at.noise & ~probed.at.broken, "noise"
        else:
            standing, beaten, how = probed.gradients.standing, probed.gradients.queried, f"Square-{probed.gradients.queries}"
        count, left = int(beaten.sum()), int(standing.sum())
        found = f"{probed.threat.label}: {how} breaks {count} of {left} probe survivors{named(store, beaten)}"
        said.append(_Said(raised=_too_many(count, left), found=found))
    return said


def _survivors_broken(store: EvidenceStore, facts: RunFacts, *, noise_only: bool) -> Finding:
    said = [*_in_the_arms(store, facts, noise_only=noise_only), *_in_the_probe(store, facts, noise_only=noise_only)]
    if not said:
        return not_run("needs a white-box and a black-box arm under one threat")
    return _together(said)


def queries_do_not_beat_gradients(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 7."""
    return _survivors_broken(store, facts, noise_only=False)


def noise_does_not_beat_attacks(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 8."""
    return _survivors_broken(store, facts, noise_only=True)


def gradients_exist(store: EvidenceStore, facts: RunFacts) -> Finding:
    """Check 9."""
    lost = f"no useful gradient passes {', '.join(facts.gradients_lost_in)}" if facts.gradients_lost_in else ""
    shares = []
    # The gradient at a clean image is the same at every threat.
    led = next((probe.gradients for probe in _probes(store, facts) if probe.gradients is not None), None)
    if led is not None:
        shares.append(("the probe's ", led.zero_gradient[led.probed]))
    key = EvidenceKey(kind=Evidence.FISHER_SPECTRUM)
    if key in store and len(zero := store.get_as(FisherSpectrum, key).zero_gradient):
        shares.append(("", zero))
    if not shares:
        if lost and not facts.has_gradients:
            return Finding(raised=True, found=lost)
        return not_run("no example entered the Fisher evidence" if key in store else "needs gradients")
    words = " and ".join(f"{zero.mean():.1%} of {whose}{len(zero)} examples" for whose, zero in shares) + " have zero gradients"
    return Finding(
        raised=any(float(zero.mean()) > MOST_ZERO_GRADIENTS for _, zero in shares), found=f"{words}; {lost}" if lost else words
    )
