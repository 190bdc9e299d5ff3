"""The whole story: models and data in, evidence gathered, one result written. Sinks come after, and need only its folder.

Stages are the only place where everything is caught: a stage that breaks costs its own metrics and no others, and an interruption
keeps what was measured.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from audit import data, gate, models
from audit.data import Dataset, sampling
from audit.engine.conclude import conclude
from audit.engine.folder import WrittenFolder, prepare_folder, write_folder
from audit.engine.local import Listener, gather
from audit.engine.manifest import manifest
from audit.engine.measure import Gathered
from audit.engine.ranking import rankings
from audit.engine.subject import Subject, open_subject
from audit.engine.summary import failures
from audit.engine.table import write_failures
from audit.errors import AuditError
from audit.evidence import EvidenceKey, Ints
from audit.models.ref import ModelRef
from audit.result import AuditResult
from audit.settings import Settings
from audit.text import printable

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """What to audit: model references, a data reference, and how. `input_spec` is options text or a TOML file."""

    models: tuple[str, ...]
    data: str
    settings: Settings
    out: Path
    reference: str | None = None
    policy: Path | None = None
    input_spec: str | None = None
    trust: bool = False
    allow_chance: bool = False
    tracking_uri: str | None = None
    registry_uri: str | None = None
    command: str = "audit.run_audit(...)"


@dataclass(frozen=True, kw_only=True)
class AuditRun:
    """A finished audit and where it lies; `interrupted` when the user stopped it on the way."""

    result: AuditResult
    written: WrittenFolder
    interrupted: bool


def _silent(_: object) -> None:
    """Tell nobody."""


def run_audit(request: AuditRequest, listen: Listener = _silent) -> AuditRun:
    """Audit models on data and write the result folder.

    Raises:
        InputError: an option, model or data set is not usable as given; nothing expensive has been done by then.
    """
    settings = request.settings
    policy = gate.load_policy(request.policy)
    dataset = data.load(request.data)
    indices = sampling.sample(dataset, settings.sample_size, settings.seed)
    folder = prepare_folder(request.out)
    subjects = open_subjects(request, dataset, indices, listen)

    results, stores, interrupted = [], [], False
    for index, subject in enumerate(subjects):
        started = time.monotonic()
        gathered, interrupted = gather_stages(subject, dataset, indices, settings, listen, interrupted=interrupted)
        chosen = failures(gathered.store, dataset.class_names, settings.threats, settings.shown_failures)
        shown = write_failures(chosen, index, folder)
        results.append(conclude(subject, gathered, dataset, settings, shown, time.monotonic() - started))
        stores.append(gathered.store)

    identity = sampling.identity(dataset, indices, settings.seed)
    result = AuditResult(
        id=uuid.uuid4().hex,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        profile=settings.profile.name,
        threats=tuple(map(str, settings.threats)),
        data=identity,
        models=tuple(replace(model, verdict=gate.judge(model, identity, settings.threats, policy)) for model in results),
        rankings=rankings(stores, settings.threats),
        manifest=manifest(request.command, settings, results[0].identity.device),
        images_kept=settings.keep_images,
    )
    return AuditRun(result=result, written=write_folder(result, stores, folder), interrupted=interrupted)


def open_subjects(request: AuditRequest, dataset: Dataset, indices: Ints, listen: Listener) -> list[Subject]:
    """Load every model and predict the clean sample, before anything expensive starts; the reference comes last.

    Raises:
        InputError: a model cannot be loaded, does not fit the data, or is no better than guessing.
    """
    roles = [(text, False) for text in request.models] + ([(request.reference, True)] if request.reference else [])
    return [
        open_subject(
            models.load(
                ModelRef.parse(text),
                spec=request.input_spec,
                trust=request.trust,
                device=request.settings.device,
                block_rows=request.settings.block_rows,
                image_shape=dataset.image_shape,
                tracking_uri=request.tracking_uri,
                registry_uri=request.registry_uri,
            ),
            dataset,
            indices,
            request.settings,
            listen,
            is_reference=is_reference,
            allow_chance=request.allow_chance,
        )
        for text, is_reference in roles
    ]


def gather_stages(
    subject: Subject, dataset: Dataset, indices: Ints, settings: Settings, listen: Listener, *, interrupted: bool
) -> tuple[Gathered, bool]:
    """Run the planned stages of one subject; what breaks or is interrupted is named, the rest goes on."""
    store = subject.store
    failed: dict[EvidenceKey, str] = {}
    for stage in subject.plan.stages:
        lost = next((need for need in stage.needs if need in failed), None)
        if stage.key in store:
            continue
        if interrupted:
            failed[stage.key] = "the audit was interrupted before it was measured"
        elif lost is not None:
            failed[stage.key] = f"it needs {lost}: {failed[lost]}"
        else:
            try:
                found = gather(subject.classifier, dataset, indices, stage.key, store, settings, listen)
                store = store.with_item(stage.key, found)
            except KeyboardInterrupt:
                interrupted = True
                failed[stage.key] = "the audit was interrupted while it was measured"
            except AuditError as error:
                failed[stage.key] = printable(str(error))
            except Exception as error:  # One failing stage must not lose the evidence of all the others.
                log.exception("stage %s failed", stage.key)
                failed[stage.key] = printable(f"{type(error).__name__}: {error}")
    return Gathered(store=store, failed=failed), interrupted
