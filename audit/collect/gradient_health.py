"""The gate: whether survival of gradient attacks may be read as robustness, or the search must be longer."""

from __future__ import annotations

import numpy as np

from audit.evidence import Evidence, EvidenceKey, EvidenceStore, Floats, GradientHealth, GradientProbe
from audit.vocabulary import Threat

# Bounds that plain and adversarially trained convolutional networks keep with room to spare, and that rounded inputs, saturated
# outputs, random layers and networks with jagged losses break.
PROMISE_KEPT = (0.9, 1.1)
LEAST_BEATS_RANDOM = 0.99
LEAST_DROP_RATIO = 3.0


def fit_gradient_health(needed: EvidenceStore, threat: Threat | None) -> GradientHealth:
    """Judge the merged probe; without an example to probe nothing speaks against gradients."""
    assert threat is not None, "the health of gradients belongs to a threat"
    probe = needed.get_as(GradientProbe, EvidenceKey(kind=Evidence.GRADIENT_PROBE, threat=threat))
    reasons = _reasons(probe) if probe.probed.any() else ()
    return GradientHealth(threat=threat, examples=int(probe.probed.sum()), believed=not reasons, reasons=reasons)


def _reasons(probe: GradientProbe) -> tuple[str, ...]:
    found = []
    probed, zero = probe.probed, probe.zero_gradient
    n = int(probed.sum())
    if zero.any():
        moving = int(probe.moves.sum())
        moves = f", though the output moves on {moving} of them" if moving else ""
        found.append(f"{int(zero.sum())} of {n} gradients are zero{moves}")
    led = probed & ~zero
    if led.any():
        kept = promise_kept(probe)
        if not PROMISE_KEPT[0] <= kept <= PROMISE_KEPT[1]:
            found.append(f"a small step along the gradient changes the margin by {kept:.2f} times what the gradient says")
        beats = float((probe.step_gain > probe.random_gain)[led].mean())
        if beats < LEAST_BEATS_RANDOM:
            found.append(f"a step along the gradient beats random steps on {beats:.0%} of the examples only")
        gain, by_chance = (float(np.median(column[led])) for column in (probe.step_gain, probe.random_gain))
        if gain < LEAST_DROP_RATIO * max(by_chance, 0.0) or gain <= 0:
            found.append(f"a step along the gradient raises the loss by {gain:.2g}, random steps by {by_chance:.2g}")
    if probe.unconfirmed.any():
        found.append(f"{int(probe.unconfirmed.sum())} broken examples are not broken when asked again")
    if probe.queried.any():
        broken, standing = int(probe.queried.sum()), int(probe.standing.sum())
        found.append(f"Square-{probe.queries} breaks {broken} of the {standing} examples that gradients left standing")
    return tuple(found)


def promise_kept(probe: GradientProbe) -> float:
    """The median over examples at the step size where it is closest to 1."""
    medians: Floats = np.median(probe.promise_kept[probe.probed & ~probe.zero_gradient], axis=0)
    return float(medians[np.abs(medians - 1).argmin()])
