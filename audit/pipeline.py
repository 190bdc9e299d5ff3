"""The whole story: models and data in, evidence gathered, one result written. Sinks come after, and need only its folder.

Stages are the only place where everything is caught: a stage that breaks costs its own metrics and no others, and an interruption
keeps what was measured. Every partial is in the journal before the next one starts, so a killed audit goes on where it stopped.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path

from audit import models
from audit.engine.apart import set_apart
from audit.engine.budget import affordable
from audit.engine.conclude import conclude
from audit.engine.folder import WrittenFolder, drop_earlier, prepare_folder, put_back, set_aside, write_folder
from audit.engine.journal import Journal, open_journal
from audit.engine.local import Listener
from audit.engine.manifest import manifest
from audit.engine.measure import Gathered
from audit.engine.natural import with_corruptions
from audit.engine.ranking import rankings
from audit.engine.sample import DataRequest, Sample, describe, draw, with_stated_names
from audit.engine.sensitive import with_sensitive
from audit.engine.stages import gather_stages
from audit.engine.subject import Subject, open_subject
from audit.engine.summary import failures
from audit.engine.surrogate import open_surrogate
from audit.engine.table import write_failures
from audit.engine.verdict import Grounds, grounds, judged
from audit.errors import InputError, OutOfMemory
from audit.evidence import Ints
from audit.models import Classifier
from audit.models.endpoint_secrets import check_hosts
from audit.models.limits import NO_LIMITS, QueryLimits
from audit.models.ref import ModelRef
from audit.result import AuditResult
from audit.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AuditRequest:
    """What to audit: model references, a data reference, and how.

    `input_spec` is options text or a TOML file. `output` names the models' output that holds the scores, where there are several.
    `expect_sha256` are the digests that the models' files must have, in the order of `models`, the reference last. `black_box`
    audits by queries only, whatever a model could do; `surrogate` is the model that transfer attacks are crafted on. `corrupted` is
    a folder of corrupted images of the data. `resume` goes on with an unfinished audit in `out`; `reuse` are result folders of
    earlier audits whose evidence is taken where its fingerprint is the same. `time_budget` (seconds) bounds the examples, `limits`
    what is asked of an endpoint or a function.
    """

    models: tuple[str, ...]
    data: str
    settings: Settings
    out: Path
    reference: str | None = None
    policy: Path | None = None
    class_names: Path | None = None
    resize: str | None = None
    skip_unreadable: bool = False
    train_data: str | None = None
    profile_data: str | None = None
    corrupted: Path | None = None
    surrogate: str | None = None
    input_spec: str | None = None
    output: str | None = None
    trust: bool = False
    expect_sha256: tuple[str, ...] = ()
    allow_chance: bool = False
    black_box: bool = False
    tracking_uri: str | None = None
    registry_uri: str | None = None
    resume: bool = False
    reuse: tuple[Path, ...] = ()
    time_budget: float | None = None
    limits: QueryLimits = NO_LIMITS
    command: str = "audit.run_audit(...)"

    @property
    def data_request(self) -> DataRequest:
        """The part that says which data to read, and how."""
        return DataRequest(
            reference=self.data,
            class_names=self.class_names,
            resize=self.resize,
            skip_unreadable=self.skip_unreadable,
            train=self.train_data,
            profile=self.profile_data,
            corrupted=self.corrupted,
            tracking_uri=self.tracking_uri,
        )


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
    on = grounds(
        request.policy,
        with_reference=request.reference is not None,
        tracking_uri=request.tracking_uri,
        registry_uri=request.registry_uri,
    )
    sample = draw(request.data_request, request.settings)
    request = replace(request, settings=sample.fitted(request.settings))
    folder = prepare_folder(request.out, resume=request.resume)
    with open_journal(folder, request.reuse) as journal:
        set_aside(folder)
        try:
            if not (request.resume or folder in request.reuse):
                journal.clear()
            try:
                run = _audit(request, sample, on, folder, journal, listen)
            except OutOfMemory as error:
                log.warning("%s; trying blocks of half the size", error)
                run = _audit(replace(request, settings=request.settings.halved()), sample, on, folder, journal, listen)
        except BaseException:
            put_back(folder)
            raise
        drop_earlier(folder)
        if run.interrupted:
            # The part may be rendered and pushed; what goes on from it is another result, with an id of its own.
            journal.forget("id")
        else:
            journal.finish()
    return run


def _audit(request: AuditRequest, sample: Sample, on: Grounds, folder: Path, journal: Journal, listen: Listener) -> AuditRun:
    settings = request.settings
    classifiers, sample = load_models(request, sample)
    dataset = sample.dataset
    if request.time_budget is not None:
        journal.begin()
        on_part = partial(gather_part, request, classifiers, sample, journal=journal, listen=listen)
        sample = replace(sample, indices=affordable(request.time_budget, on_part, sample.indices, settings, journal))
    subjects = open_subjects(request, classifiers, sample, journal, listen)
    # From here on there is something to go on with; a model that was refused leaves the folder as it was.
    journal.begin()

    results, stores, interrupted = [], [], False
    for index, subject in enumerate(subjects):
        started = time.monotonic()
        gathered, interrupted = gather_stages(subject, settings, interrupted=interrupted)
        chosen = failures(gathered.store, dataset.class_names, settings.threats, settings.shown_failures)
        shown = write_failures(chosen, index, folder)
        found = conclude(subject, gathered, dataset, settings, shown, time.monotonic() - started)
        found = with_corruptions(found, gathered.store, sample, settings, index, folder)
        results.append(with_sensitive(found, gathered.store, dataset.class_names, index, folder))
        stores.append(gathered.store)

    result = AuditResult(
        id=journal.decided("id", uuid.uuid4().hex),
        created=journal.decided("created", datetime.now(UTC).isoformat(timespec="seconds")),
        profile=settings.profile.name,
        threats=tuple(map(str, settings.threats)),
        data=describe(sample, settings),
        models=tuple(results),
        rankings=rankings(stores, settings.threats, [model.skipped for model in results]),
        manifest=manifest(
            request.command,
            settings,
            results[0].identity.device,
            None if sample.corrupted is None else sample.corrupted.digest,
        ),
        images_kept=settings.keep_images,
    )
    result = judged(result, stores, on)
    return AuditRun(result=result, written=write_folder(result, stores, folder), interrupted=interrupted)


def load_models(request: AuditRequest, sample: Sample) -> tuple[list[Classifier], Sample]:
    """Load every model, the reference last; the sample gets the class names that they state, unless the user gave some.

    Raises:
        InputError: a model cannot be loaded, refuses the images, or states class names that do not fit.
    """
    refs = [ModelRef.parse(text) for text in (*request.models, *([request.reference] if request.reference else []))]
    check_hosts(ref.url for ref in refs if ref.url is not None)
    if len(request.expect_sha256) > len(refs):
        raise InputError(
            f"--expect-sha256 was given {len(request.expect_sha256)} times for {len(refs)} models; give it once for each"
        )
    classifiers = [
        models.load(
            ref,
            spec=request.input_spec,
            output=request.output,
            trust=request.trust,
            expect_sha256=expected,
            device=request.settings.device,
            block_rows=request.settings.block_rows,
            image_shape=sample.dataset.image_shape,
            tracking_uri=request.tracking_uri,
            registry_uri=request.registry_uri,
            class_names=sample.dataset.class_names,
            limits=request.limits,
            black_box=request.black_box,
        )
        for ref, expected in zip_longest(refs, request.expect_sha256)
    ]
    if request.class_names is not None:
        return classifiers, sample
    return classifiers, with_stated_names(sample, [classifier.identity for classifier in classifiers])


def open_subjects(
    request: AuditRequest, classifiers: list[Classifier], sample: Sample, journal: Journal, listen: Listener
) -> list[Subject]:
    """Predict the clean sample with every model, before anything expensive starts.

    Raises:
        InputError: a model does not fit the data, or is no better than guessing.
    """
    surrogate = (
        None
        if request.surrogate is None
        else open_surrogate(
            request.surrogate,
            sample.dataset,
            sample.indices,
            request.settings,
            trust=request.trust,
            tracking_uri=request.tracking_uri,
            registry_uri=request.registry_uri,
        )
    )
    opened = partial(
        open_subject,
        dataset=sample.dataset,
        indices=sample.indices,
        settings=request.settings,
        journal=journal,
        listen=listen,
        apart=set_apart(sample.dataset, sample.indices, request.settings, sample.profile),
        allow_chance=request.allow_chance,
        surrogate=surrogate,
        corrupted=sample.corrupted,
    )
    # The reference first: what it gives is evidence of the models that are compared with it.
    audited = len(request.models)
    references = [opened(classifier, is_reference=True) for classifier in classifiers[audited:]]
    reference = references[0] if references else None
    return [*(opened(each, is_reference=False, reference=reference) for each in classifiers[:audited]), *references]


def gather_part(
    request: AuditRequest, classifiers: list[Classifier], sample: Sample, part: Ints, *, journal: Journal, listen: Listener
) -> list[Gathered]:
    """Gather the evidence of every model on a part of the sample."""
    opened = open_subjects(request, classifiers, replace(sample, indices=part), journal, listen)
    return [gather_stages(subject, request.settings, interrupted=False)[0] for subject in opened]
