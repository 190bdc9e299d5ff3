"""A subject: one loaded model with its clean predictions, checked before anything expensive starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from audit import statistics
from audit.attacks.self_test import self_test
from audit.collect.costs import AVERAGED_OPENING_CALLS
from audit.collect.neurons import chosen
from audit.data import CorruptedImages, Dataset
from audit.engine.apart import SetApart, set_apart
from audit.engine.journal import Journal
from audit.engine.labels import label_hint
from audit.engine.local import Gatherer, Listener
from audit.engine.summary import predictions_of
from audit.engine.surrogate import beside
from audit.errors import DataError, ModelError
from audit.evidence import Evidence, EvidenceKey, Ints, Predictions
from audit.metrics import CATALOG
from audit.metrics.findings import RunFacts
from audit.metrics.honesty import MOST_REPEAT_DIFFERENCE
from audit.models import Classifier, resolve_outputs
from audit.models.averaged import AveragedClassifier
from audit.plan import Plan, plan
from audit.settings import Settings
from audit.text import printable
from audit.vocabulary import Capability

PREDICTIONS = EvidenceKey(kind=Evidence.PREDICTIONS)
REPEATS = 5
NO_REFERENCE = "no reference model was given (--reference MODEL)"
ITSELF = "this is the reference model itself"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model ready to be attacked: its plan, what the run knows about it, and a gatherer that holds its clean predictions."""

    classifier: Classifier
    is_reference: bool
    plan: Plan
    facts: RunFacts
    gatherer: Gatherer
    cautions: tuple[str, ...]


def open_subject(
    classifier: Classifier,
    dataset: Dataset,
    indices: Ints,
    settings: Settings,
    journal: Journal,
    listen: Listener,
    *,
    is_reference: bool,
    allow_chance: bool,
    surrogate: Classifier | None = None,
    apart: SetApart | None = None,
    reference: Subject | None = None,
    corrupted: CorruptedImages | None = None,
) -> Subject:
    """Settle the outputs, predict the clean sample, and refuse what cannot be audited.

    A model that answers at random is averaged where `settings.eot` says over how many calls; `reference` is what it is compared
    with. `apart` is chosen unless it is given. `corrupted` is the folder that corrupted images are taken from, if any.

    Raises:
        InputError: `settings.layers` names a layer that the model does not have.
        DataError: a label is outside the model's classes.
        ModelError: the model refuses the images, gives non-finite outputs, or is no better than guessing.
    """
    # Two blocks, as what holds in one need not hold in the next; of a model that is asked from outside, one must do.
    blocks = 1 if classifier.identity.opaque else 2
    looked_at = torch.from_numpy(dataset.images(indices[: blocks * settings.block_rows])).to(classifier.device)
    classifier, first = resolve_outputs(classifier, looked_at), looked_at[: settings.block_rows]
    _check_labels(classifier, dataset, indices)
    calls = torch.stack([classifier.logits(first) for _ in range(REPEATS)])
    repeat_difference, averaged_difference = _repeat_difference(classifier, calls), 0.0
    at_random = repeat_difference > MOST_REPEAT_DIFFERENCE
    if at_random and settings.eot > 1:
        classifier = AveragedClassifier(classifier, settings.eot)
        means = torch.stack([classifier.logits(first) for _ in range(AVERAGED_OPENING_CALLS)])
        averaged_difference = _repeat_difference(classifier, means)
    averaged = classifier.identity.averaged
    classifier, no_transfer = beside(classifier, surrogate)
    if settings.layers and Capability.ACTIVATIONS not in classifier.lacks:
        chosen({name: values.shape[1] for name, values in classifier.activations(first[:1]).items()}, settings.layers)
    apart = set_apart(dataset, indices, settings) if apart is None else apart
    compared = None if reference is None else reference.gatherer
    gatherer = Gatherer(classifier, dataset, indices, settings, journal, listen, apart, compared, corrupted)
    if classifier.identity.opaque:
        gatherer.gather_answers(PREDICTIONS)
    else:
        gatherer.gather(PREDICTIONS, ())
    predictions = predictions_of(gatherer.store)
    hint = label_hint(predictions.labels, predictions.predicted, classifier.classes)
    if not allow_chance:
        _check_chance(classifier, predictions, hint)
    cautions = (*(() if hint is None else (f"{hint[:1].upper()}{hint[1:]}.",)), *_fewer_classes(classifier, dataset))
    facts = RunFacts(
        threats=settings.threats,
        repeat_difference=repeat_difference,
        outputs=classifier.identity.outputs,
        outputs_clear=not any("softmax is applied twice" in caution for caution in classifier.identity.cautions),
        device_asked=settings.device,
        device=classifier.identity.device,
        has_gradients=Capability.GRADIENTS not in classifier.lacks,
        gradients_lost_in=classifier.identity.gradients_lost_in,
        labels_only=Capability.SCORES in classifier.lacks,
        self_test=self_test(labels_only=Capability.SCORES in classifier.lacks),
        averaged=averaged,
        averaged_difference=averaged_difference,
    )
    lacks = dict(classifier.lacks)
    if no_transfer is not None:
        lacks[Capability.SURROGATE] = no_transfer
    if reference is None:
        lacks[Capability.REFERENCE] = ITSELF if is_reference else NO_REFERENCE
    if not len(apart.indices):
        lacks[Capability.PROFILE_DATA] = "the data have too few images to set some apart"
    planned = plan(CATALOG, lacks, settings, classifier.classes, int(np.prod(dataset.image_shape)), averaged)
    if at_random and averaged == 1:
        planned = _without_per_example_arms(planned, repeat_difference)
    return Subject(
        classifier=classifier, is_reference=is_reference, plan=planned, facts=facts, gatherer=gatherer, cautions=cautions
    )


def _without_per_example_arms(planned: Plan, difference: float) -> Plan:
    because = (
        f"the model answers at random: five identical calls differ by {difference:.2g} in probability; --eot K audits what it "
        "answers on average over K calls"
    )
    deterministic = {Evidence.PREDICTIONS, Evidence.TEMPERATURE, Evidence.PROBE_SAMPLE}
    random = {stage.key: because for stage in planned.stages if stage.key.kind not in deterministic}
    return replace(
        planned,
        stages=tuple(stage for stage in planned.stages if stage.key not in random),
        skipped={**planned.skipped, **random},
    )


def _repeat_difference(classifier: Classifier, calls: torch.Tensor) -> float:
    """How far identical calls (r, n, K) lie apart in probability; of labels, 0 where all are the same and 1 elsewhere."""
    compared = calls if Capability.SCORES in classifier.lacks else calls.double().softmax(dim=2)
    return float((compared.amax(dim=0) - compared.amin(dim=0)).max())


def _check_labels(classifier: Classifier, dataset: Dataset, indices: Ints) -> None:
    labels = dataset.labels[indices]
    outside = np.flatnonzero(labels >= classifier.classes)
    if len(outside):
        worst = int(labels[outside].max())
        raise DataError(
            f"{len(outside)} of {len(labels)} sampled labels are outside the classes of {printable(classifier.identity.label)}: "
            f"it knows {classifier.classes} (0 to {classifier.classes - 1}), the data have label {worst} "
            f"(first: {printable(str(dataset.ids[indices][outside[0]]))}); check that model and data belong together"
        )


def _fewer_classes(classifier: Classifier, dataset: Dataset) -> tuple[str, ...]:
    named = len(dataset.class_names)
    if named >= classifier.classes:
        return ()
    return (
        f"The data name {named} classes and the model knows {classifier.classes}: label k of the data is taken for class k of the "
        "model, so a class that is missing in between shifts every class after it.",
    )


def _check_chance(classifier: Classifier, predictions: Predictions, hint: str | None) -> None:
    right, total = int(predictions.correct.sum()), len(predictions.labels)
    counts = np.bincount(predictions.labels)
    chance = float(counts.max()) / total
    interval = statistics.proportion(right, total)
    if interval.low > chance:
        return
    name = printable(classifier.identity.label)
    if chance == 1.0:
        raise ModelError(
            f"all {total} sampled examples have one label, so nothing tells {name} from a constant answer; "
            "give data with several classes, or pass --allow-chance"
        )
    check = hint or "audit inspect tries the usual value ranges, normalisations, layouts and channel orders on these data"
    raise ModelError(
        f"{name} is right on {right} of {total} clean images (95 % interval {interval.low:.1%} to {interval.high:.1%}), not to be "
        f"told from always answering the largest class ({chance:.1%}); {check}, give more examples if there are few, or pass "
        "--allow-chance to audit it all the same"
    )
