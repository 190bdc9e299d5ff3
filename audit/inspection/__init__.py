"""What a model is and which input specification is the right one, found out before anything is audited.

The walk: `describe` reads the files and runs nothing of them, `candidates` lists the usual specifications, `try_all` runs the
sample under all of them in one pass, `judge` says which is right and whether another could be, and `keep` writes it down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from audit.engine.sample import DataRequest, Sample, draw, with_stated_names
from audit.errors import AuditError, InputError, ModelError
from audit.inspection.candidates import Candidate, candidates
from audit.inspection.judgement import Judgement, judge
from audit.inspection.trial import try_all
from audit.models import resolve_outputs
from audit.models.device import check
from audit.models.input_spec import InputSpec
from audit.models.inspection import Facts, describe
from audit.models.loading import ImageShape, Opened, opened
from audit.models.located import located
from audit.models.mlmodel import Route
from audit.models.ref import ModelRef
from audit.models.shapes import forms
from audit.result import ModelIdentity
from audit.settings import Settings
from audit.vocabulary import Capability

# What a model itself may be able to do; the other capabilities are the audit's.
OWN_CAPABILITIES = (Capability.LABELS, Capability.SCORES, Capability.GRADIENTS, Capability.ACTIVATIONS)


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """What to inspect; `input_spec` joins the candidates as the specification in force. Without `data` nothing is tried."""

    model: str
    data: DataRequest | None = None
    samples: int = 200
    seed: int = 0
    device: str = "auto"
    input_spec: str | None = None
    output: str | None = None
    trust: bool = False
    expect_sha256: str | None = None
    tracking_uri: str | None = None
    registry_uri: str | None = None


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The candidates on the sample: those that ran are judged, `refused` maps each reason to the names of the others."""

    source: str
    total: int
    samples: int
    image_shape: ImageShape
    judgement: Judgement | None
    refused: Mapping[str, tuple[str, ...]]
    forward_passes: int
    cautions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Everything found.

    `runs` is the code that loading would run, in words. `spec` is the input specification in force and `places` where each of its
    keys is stated (the others are defaults). `lacks` is None where it could not be settled. `problem` is why the model could not be
    opened, or takes none of the images; None where all went well.
    """

    identity: ModelIdentity
    facts: Facts
    runs: tuple[str, ...]
    spec: InputSpec
    places: Mapping[str, str]
    lacks: Mapping[Capability, str] | None = None
    trial: Trial | None = None
    problem: AuditError | None = None


def inspect(request: InspectRequest, listen: Callable[[int, int], None] = lambda _done, _total: None) -> Inspection:
    """Inspect a model, and with data find its input specification.

    Args:
        request: what to inspect.
        listen: called with the number of images done, of all images.

    Raises:
        InputError: there is no such model or data, or they cannot be read; nothing can be said about them.
    """
    check(request.device)
    ref = ModelRef.parse(request.model)
    if not ref.has_files:
        kind = "an endpoint" if ref.is_endpoint else "a function"
        raise InputError(
            f"audit inspect reads the files of a model, and {ref.reference} is {kind}, which has none to read; "
            "audit plan asks it: it takes --input-spec, and says when the model is at chance under it"
        )
    settings = replace(Settings.of("quick"), samples=request.samples, seed=request.seed)
    sample = None if request.data is None else draw(request.data, settings)
    with located(
        ref,
        spec=request.input_spec,
        expect_sha256=request.expect_sha256,
        tracking_uri=request.tracking_uri,
        registry_uri=request.registry_uri,
    ) as found:
        known = Inspection(
            identity=found.identity,
            facts=describe(found, None),
            runs=found.runs,
            spec=found.stated.complete(),
            places=found.stated.places,
        )
        if found.runs and not request.trust and sample is None:
            return known
        try:
            model = opened(
                found,
                output=request.output,
                trust=request.trust,
                device=request.device,
                block_rows=settings.block_rows,
                class_names=() if sample is None else sample.dataset.class_names,
            )
        except AuditError as error:
            return replace(known, problem=error)
        facts = known.facts if found.route is Route.ONNX else describe(found, model)
        known = replace(known, identity=model.identity, facts=facts, spec=model.given.complete(), places=model.given.places)
        if sample is None or request.data is None:
            return _looked_at(known, model)
        return _tried(known, model, sample, settings, listen, names_given=request.data.class_names is not None)


def _looked_at(known: Inspection, model: Opened) -> Inspection:
    """With what a few passes of noise show, where the model says what shape it takes; what the axes mean does not matter here."""
    sizes = tuple(size for size in model.declared.shape or () if size is not None)
    layout = {1: "FLAT", 2: "NCD", 3: "NCHW", 4: "NCHW1"}.get(len(sizes))
    if layout is None or len(sizes) != len(model.declared.shape or ()):
        return known
    c, h, w = {1: (1, 1, *sizes), 2: (sizes[0], 1, sizes[-1])}.get(len(sizes), sizes[:3])
    try:
        plain = InputSpec(layout=layout, dtype=known.spec.dtype)  # type: ignore[arg-type]  # a key of LAYOUTS
        classifier = model.wrap(plain, (c, h, w))
    except AuditError as error:
        return replace(known, problem=error)
    return replace(known, identity=classifier.identity, lacks=classifier.lacks)


def _tried(
    known: Inspection,
    model: Opened,
    sample: Sample,
    settings: Settings,
    listen: Callable[[int, int], None],
    *,
    names_given: bool,
) -> Inspection:
    dataset, indices = sample.dataset, sample.indices
    declared = model.declared.shape
    if declared is None:
        logged = _logged_shape(known.facts)
        declared = logged if any(forms(logged, dataset.image_shape)) else None
    specs = candidates(declared, dataset.image_shape, known.spec)
    if not names_given:
        dataset = _with_names(model, specs, sample, settings.block_rows).dataset
    labels = dataset.labels[indices]
    tried = try_all(model, specs, dataset, indices, labels, settings.block_rows, lambda done: listen(done, len(indices)))
    refused: dict[str, tuple[str, ...]] = {}
    for each in tried:
        if each.refused is not None:
            refused[each.refused] = (*refused.get(each.refused, ()), each.candidate.name)
    trial = Trial(
        source=dataset.source,
        total=len(dataset.labels),
        samples=len(indices),
        image_shape=dataset.image_shape,
        judgement=None,
        refused=refused,
        forward_passes=sum(each.rows_run for each in tried),
    )
    if all(each.refused is not None for each in tried):
        reason = next(iter(refused))
        problem = ModelError(f"{known.identity.label}: runs under none of the {len(tried)} usual input specs; the first: {reason}")
        return replace(known, trial=trial, problem=problem)
    judgement = judge(tried, labels, dataset.image_shape[0])
    classifier = model.wrap(judgement.best.candidate.spec, dataset.image_shape)
    first = torch.from_numpy(dataset.images(indices[: settings.block_rows])).to(classifier.device)
    classifier = resolve_outputs(classifier, first)
    outside = int((labels >= classifier.classes).sum())
    caution = f"{outside} of {len(indices)} labels are outside the model's {classifier.classes} classes and count as wrong."
    return replace(
        known,
        identity=classifier.identity,
        lacks=classifier.lacks,
        trial=replace(trial, judgement=judgement, cautions=(*dataset.cautions, *([caution] if outside else []))),
    )


def _with_names(model: Opened, specs: Sequence[Candidate], sample: Sample, block_rows: int) -> Sample:
    """The sample with the class names that the model states, which are known once it ran in some form."""
    dataset, first = sample.dataset, sample.indices[:block_rows]
    for candidate in specs:
        (tried,) = try_all(model, [candidate], dataset, first, dataset.labels[first], block_rows)
        if tried.refused is None:
            return with_stated_names(sample, [model.wrap(candidate.spec, dataset.image_shape).identity])
    return sample


def _logged_shape(facts: Facts) -> tuple[int | None, ...] | None:
    """The shape of one image in the signature that was logged with the model, where its code alone does not say."""
    shape = facts.inputs[0].shape if len(facts.inputs) == 1 else None
    if shape is None or len(shape) < 2:
        return None
    return tuple(size if isinstance(size, int) else None for size in shape[1:])
