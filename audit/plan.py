"""The plan of an audit: what runs, what is skipped and why, in which order, and what it costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from audit.collect import COLLECTORS, FITS, arms, corruptions, why_not
from audit.collect.costs import AVERAGED_OPENING_CALLS, OPENING_CALLS, escalated_passes, images_sent, not_repeatable, passes
from audit.evidence import OF_REFERENCE, PER_THREAT, Evidence, EvidenceKey
from audit.metrics.honesty import CHECKED
from audit.metrics.spec import Metric, key_of
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

# Who lacks one lacks these too.
_IMPLYING = {
    Capability.LABELS: (Capability.SCORES, Capability.GRADIENTS),
    Capability.SCORES: (Capability.GRADIENTS,),
}


@dataclass(frozen=True, kw_only=True)
class PlannedMetric:
    """One value to measure."""

    metric: Metric
    variant: str | None
    threat: Threat | None

    @property
    def key(self) -> str:
        """The value's key."""
        return key_of(self.metric.id, self.variant, self.threat)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One kind of evidence to gather, what it needs, and its cost in passes per image at most.

    `escalated` are forward and backward passes where the probe finds that gradients cannot be believed, None where that changes
    nothing; `attacks` the searches of an arm, in order.
    """

    key: EvidenceKey
    needs: tuple[EvidenceKey, ...]
    forward_passes: int
    backward_passes: int
    escalated: tuple[int, int] | None = None
    attacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Stages in the order they run, evidence that cannot be gathered with the reason, and the values that follow.

    `not_run` are attacks of the profile that this model is spared and kinds of corruption that a folder lacks, with the reason.
    Each pass counts `averaged` times.
    """

    stages: tuple[Stage, ...]
    skipped: Mapping[EvidenceKey, str]
    metrics: tuple[PlannedMetric, ...]
    not_run: Mapping[str, str] = field(default_factory=dict)
    averaged: int = 1

    @property
    def left_out(self) -> dict[str, str]:
        """What is not gathered or not run, in words, and why."""
        return {**{str(key): because for key, because in self.skipped.items()}, **self.not_run}


def plan(
    catalog: tuple[Metric, ...],
    lacks: Mapping[Capability, str],
    settings: Settings,
    classes: int,
    dimension: int,
    averaged: int = 1,
) -> Plan:
    """Plan the catalogue for a model that lacks `lacks`, with K `classes` on images of `dimension` = c h w values.

    Each of its answers is the mean of `averaged` calls.
    """
    wanted = _with_needs({kind for metric in catalog for kind in metric.needs} | CHECKED, lacks)
    stages: list[Stage] = []
    skipped: dict[EvidenceKey, str] = {}
    # Evidence is declared in dependency order, so one pass decides every kind.
    for kind in (kind for kind in Evidence if kind in wanted):
        kinds_needed = _needs(kind, lacks)
        for threat in settings.threats if kind in PER_THREAT else (None,):
            key = EvidenceKey(kind=kind, threat=threat)
            needs = tuple(EvidenceKey(kind=need, threat=threat if need in PER_THREAT else None) for need in sorted(kinds_needed))
            because = (
                why_not(kind, lacks)
                or not_repeatable(kind, classes, averaged)
                or next((skipped[need] for need in needs if need in skipped), None)
            )
            if because is not None:
                skipped[key] = because
                continue
            forward, backward = (averaged * count for count in passes(key, settings, lacks, classes, dimension))
            escalated = escalated_passes(key, settings, classes)
            if escalated is not None:
                escalated = averaged * escalated[0], averaged * escalated[1]
            searches = () if threat is None else arms.run(kind, settings, lacks, classes, threat)
            stages.append(
                Stage(
                    key=key,
                    needs=needs,
                    forward_passes=forward,
                    backward_passes=backward,
                    escalated=escalated,
                    attacks=tuple(search.name for search in searches),
                )
            )
    metrics = tuple(
        PlannedMetric(metric=metric, variant=variant, threat=threat)
        for metric in catalog
        for variant, threat in metric.values(settings)
    )
    return Plan(
        stages=tuple(stages),
        skipped=skipped,
        metrics=metrics,
        not_run={
            **dict(pair for threat in settings.threats for pair in arms.not_run(settings, lacks, classes, threat)),
            **corruptions.not_there(settings),
        },
        averaged=averaged,
    )


def requirements(metric: Metric) -> tuple[Capability, ...]:
    """What a classifier must offer for this metric, without what that implies: gradients imply scores, and anything labels.

    >>> from audit.metrics import adversarial
    >>> [each.value for each in requirements(adversarial.average_confidence_of_true_class)]
    ['scores']
    """
    found = [capability for capability in Capability if beyond({capability, *_IMPLYING.get(capability, ())}, (metric,))]
    implied = {low for low, high in _IMPLYING.items() if any(each in found for each in high)}
    return tuple(capability for capability in found if capability not in implied)


def beyond(lacks: Set[Capability], catalog: tuple[Metric, ...]) -> tuple[Metric, ...]:
    """The metrics of `catalog` that a classifier which lacks these cannot be given."""
    reasons = {capability: capability.value for capability in lacks}
    return tuple(
        metric
        for metric in catalog
        if (metric.reads_scores and Capability.SCORES in lacks) or any(why_not(kind, reasons) for kind in metric.needs)
    )


def _needs(kind: Evidence, lacks: Mapping[Capability, str]) -> frozenset[Evidence]:
    if kind in OF_REFERENCE:
        return frozenset()
    return FITS[kind].needs if kind in FITS else COLLECTORS[kind].needs_of(lacks)


def _with_needs(wanted: Set[Evidence], lacks: Mapping[Capability, str]) -> Set[Evidence]:
    """`wanted` and everything that what can be gathered of it needs on the way."""
    found: set[Evidence] = set()
    left = set(wanted)
    while left:
        found |= left
        left = {need for kind in left if why_not(kind, lacks) is None for need in _needs(kind, lacks)} - found
    return found


def queries_needed(planned: Plan, settings: Settings, dimension: int, samples: int) -> int:
    """Images that an audit of `samples` examples sends to an endpoint or a function at most, opening and padding included."""
    stages = (
        images_sent(stage.key.kind, settings, stage.forward_passes, dimension, samples, planned.averaged)
        if stage.forward_passes
        else 0
        for stage in planned.stages
    )
    opening = OPENING_CALLS + (AVERAGED_OPENING_CALLS * planned.averaged if planned.averaged > 1 else 0)
    return opening * settings.block_rows + sum(stages)
