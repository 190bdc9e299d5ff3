"""The planned stages of one subject, one after the other: a stage that breaks costs its own metrics and no others."""

from __future__ import annotations

import logging
import time

from audit.collect import COLLECTORS
from audit.engine.measure import Gathered
from audit.engine.subject import Subject
from audit.errors import AuditError, OutOfMemory
from audit.evidence import EvidenceKey
from audit.plan import Plan, Stage
from audit.settings import Settings
from audit.text import printable

log = logging.getLogger(__name__)


def gather_stages(subject: Subject, settings: Settings, *, interrupted: bool) -> tuple[Gathered, bool]:
    """Run the planned stages of one subject; what breaks or is interrupted is named, the rest goes on.

    Raises:
        OutOfMemory: a block does not fit, and smaller ones have not been tried.
    """
    gatherer = subject.gatherer
    failed: dict[EvidenceKey, str] = {}
    seconds: dict[EvidenceKey, float] = {}
    for stage in subject.plan.stages:
        started = time.monotonic()
        lost = next((need for need in stage.needs if need in failed), None)
        if stage.key in gatherer.store:
            continue
        if interrupted:
            failed[stage.key] = "the audit was interrupted before it was measured"
        elif lost is not None:
            failed[stage.key] = f"it needs {lost}: {failed[lost]}"
        else:
            try:
                gatherer.gather(stage.key, stage.needs, _beside(stage, subject.plan))
            except KeyboardInterrupt:
                interrupted = True
                failed[stage.key] = "the audit was interrupted while it was measured"
            except OutOfMemory as error:
                if settings.halved_from is None:
                    raise
                failed[stage.key] = printable(str(error))
            except AuditError as error:
                failed[stage.key] = printable(str(error))
            except (Exception, SystemExit) as error:  # One failing stage must not lose the evidence of all the others.
                log.exception("stage %s failed: %s: %s", stage.key, type(error).__name__, error)
                failed[stage.key] = printable(f"{type(error).__name__}: {error}")
        seconds[stage.key] = time.monotonic() - started
    return Gathered(store=gatherer.store, failed=failed, seconds=seconds), interrupted


def _beside(stage: Stage, planned: Plan) -> Stage | None:
    """The planned stage whose evidence can be had on the way of this one."""
    beside = COLLECTORS[stage.key.kind].beside if stage.key.kind in COLLECTORS else None
    if beside is None:
        return None
    return next((each for each in planned.stages if each.key == EvidenceKey(kind=beside.kind, threat=stage.key.threat)), None)
