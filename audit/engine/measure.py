"""Evidence becomes metric records: every planned value is Measured, or says why it is not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from audit.errors import MissingCapability
from audit.errors import Undefined as UndefinedValue
from audit.evidence import PER_THREAT, EvidenceKey, EvidenceStore
from audit.metrics.findings import RunFacts, not_run
from audit.metrics.honesty import CHECKS, check_record
from audit.metrics.spec import Estimate, Metric, key_of, variant_words
from audit.plan import Plan
from audit.result import CheckRecord, Failed, Measured, MetricRecord, NotApplicable, Outcome, Undefined
from audit.text import printable
from audit.vocabulary import Threat

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What one model's stages gave: evidence, for each stage that broke the reason in words, and the seconds each took."""

    store: EvidenceStore
    failed: Mapping[EvidenceKey, str]
    seconds: Mapping[EvidenceKey, float]


def measure(plan: Plan, gathered: Gathered) -> tuple[MetricRecord, ...]:
    """One record per planned value, in catalogue order."""
    return tuple(
        record(
            planned.metric,
            planned.variant,
            planned.threat,
            _outcome(planned.metric, planned.variant, planned.threat, plan, gathered),
        )
        for planned in plan.metrics
    )


def check(store: EvidenceStore, facts: RunFacts) -> tuple[CheckRecord, ...]:
    """All honesty checks in order; one that breaks is NOT RUN and says so."""
    records = []
    for text, run in CHECKS:
        try:
            finding = run(store, facts)
        except Exception as error:  # A broken check must not lose the audit, nor look like a passed one.
            log.exception("honesty check %d failed", text.number)
            finding = not_run(printable(f"the check itself failed: {type(error).__name__}: {error}"))
        records.append(check_record(text, finding))
    return tuple(records)


def record(metric: Metric, variant: str | None, threat: Threat | None, found: tuple[Outcome, tuple[str, ...]]) -> MetricRecord:
    """The record of one value, self-contained for readers that do not know the catalogue."""
    outcome, notes = found
    return MetricRecord(
        key=key_of(metric.id, variant, threat),
        id=metric.id,
        name=metric.name if variant is None else f"{metric.name}, {variant_words(variant)}",
        symbol=metric.symbol,
        family=metric.family.value,
        unit=metric.unit_of(variant).value,
        better=metric.better,
        definition=metric.definition,
        source=metric.source,
        outcome=outcome,
        variant=variant,
        threat=None if threat is None else str(threat),
        paper_row=metric.paper_row,
        notes=notes,
    )


def _outcome(
    metric: Metric, variant: str | None, threat: Threat | None, plan: Plan, gathered: Gathered
) -> tuple[Outcome, tuple[str, ...]]:
    arguments: dict[str, object] = {}
    for kind in metric.needs:
        if kind in PER_THREAT and threat is None:
            arguments[kind.value] = None  # a variant that belongs to no threat
            continue
        key = EvidenceKey(kind=kind, threat=threat if kind in PER_THREAT else None)
        if key in plan.skipped:
            return NotApplicable(because=plan.skipped[key]), ()
        if key in gathered.failed:
            return Failed(error=gathered.failed[key]), ()
        arguments[kind.value] = gathered.store[key]
    if "threat" in metric.parameters:
        arguments["threat"] = threat
    if "variant" in metric.parameters:
        arguments["variant"] = variant
    try:
        estimate = metric(**arguments)
    except MissingCapability as reason:
        return NotApplicable(because=str(reason)), ()
    except UndefinedValue as reason:
        return Undefined(because=str(reason)), ()
    except Exception as error:  # One failing metric must not lose the evidence of all the others.
        log.exception("metric %s failed", metric.id)
        return Failed(error=printable(f"{type(error).__name__}: {error}")), ()
    return _measured(estimate), estimate.notes


def _measured(estimate: Estimate) -> Measured:
    return Measured(
        value=estimate.value,
        samples=estimate.samples,
        interval=estimate.interval,
        why_no_interval=estimate.why_no_interval,
    )
