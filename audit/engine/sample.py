"""The data of an audit: loaded as asked, sampled, and checked for copies and for images that were trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from audit import data
from audit.corruptions.parameters import BENCHMARK_KINDS, KINDS, absent_from
from audit.data import CorruptedImages, Dataset, Resize
from audit.data.duplicates import contamination, duplicates
from audit.data.sampling import identity, sample
from audit.engine.apart import check_given
from audit.errors import InputError, ModelError
from audit.evidence import Ints
from audit.result import DataIdentity, ModelIdentity
from audit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """A data reference and how to read it; `train` refers to the training data, for images that occur in both.

    `profile` refers to other data, from which the ranges of neurons are taken. `corrupted` is a folder of corrupted images of the
    data; without one they are made.
    """

    reference: str
    class_names: Path | None = None
    resize: str | None = None
    skip_unreadable: bool = False
    train: str | None = None
    profile: str | None = None
    corrupted: Path | None = None
    tracking_uri: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A data set, the sample drawn from it in canonical order, and the training, profile and corrupted data if they were given."""

    dataset: Dataset
    indices: Ints
    train: Dataset | None
    profile: Dataset | None = None
    corrupted: CorruptedImages | None = None

    def fitted(self, settings: Settings) -> Settings:
        """The settings as these images want them: the chunk, and the kinds of corruption."""
        kinds = () if self.corrupted is None else self.corrupted.kinds
        return replace(settings.for_images(self.dataset.image_shape), corrupted_kinds=kinds)


def draw(request: DataRequest, settings: Settings) -> Sample:
    """Load the data and draw the sample.

    Raises:
        DataError: the data cannot be read as asked.
        InputError: the profile data are the audited data, or have images of another shape; the folder of corrupted images has no
            kind under its published name.
    """
    resize = None if request.resize is None else Resize.parse(request.resize)

    def load(reference: str) -> Dataset:
        return data.load(
            reference,
            class_names=None if request.class_names is None else data.read_class_names(request.class_names),
            resize=resize,
            skip_unreadable=request.skip_unreadable,
            tracking_uri=request.tracking_uri,
        )

    dataset = load(request.reference)
    profile = None if request.profile is None else load(request.profile)
    if profile is not None:
        check_given(profile, dataset)
    indices = sample(dataset, settings.sample_size, settings.seed)
    corrupted = None
    if request.corrupted is not None:
        # Only what is corrupted of the sample is looked for.
        corrupted = data.load_corrupted(request.corrupted, dataset, indices[: settings.profile.corruption_samples], resize)
        if not set(KINDS) & set(corrupted.kinds):
            raise InputError(
                f"the folder of corrupted images has no kind under its published name, only {', '.join(corrupted.kinds[:5])}; "
                f"published are {', '.join(KINDS)}"
            )
    return Sample(
        dataset=dataset,
        indices=indices,
        train=None if request.train is None else load(request.train),
        profile=profile,
        corrupted=corrupted,
    )


def with_stated_names(sample: Sample, models: Sequence[ModelIdentity]) -> Sample:
    """The sample with the class names that the models state of themselves, its labels in the models' order.

    Raises:
        InputError: the models name their classes differently, so that no label means the same to all of them.
        ModelError: a model states another number of names than it has classes.
    """
    stated = {model.class_names: model for model in models if model.class_names}
    for names, model in stated.items():
        if len(names) != model.classes:
            raise ModelError(
                f"{model.label} states {len(names)} class names and gives {model.classes} classes; mend its class names, or pass "
                "--class-names"
            )
    if len(stated) > 1:
        first, second = list(stated.values())[:2]
        raise InputError(
            f"{first.label} and {second.label} name their classes differently or in another order; audit them apart, or pass "
            "--class-names if the order is the same"
        )
    return sample if not stated else replace(sample, dataset=data.named_by_model(sample.dataset, next(iter(stated))))


def describe(sample: Sample, settings: Settings) -> DataIdentity:
    """What the audit rests on, with cautions for copies in the sample, images that were trained on, and kinds of corruption."""
    dataset, indices = sample.dataset, sample.indices
    found = identity(dataset, indices, settings.seed)
    cautions = [duplicates(dataset, indices).caution]
    if sample.train is not None:
        cautions.append(contamination(dataset, indices, sample.train).caution)
    if sample.corrupted is not None:
        cautions.append(_kinds_caution(sample.corrupted))
    return replace(found, cautions=(*found.cautions, *(caution for caution in cautions if caution is not None)))


def _kinds_caution(corrupted: CorruptedImages) -> str | None:
    """Where the kinds of a folder are not those of the benchmark."""
    absent = absent_from(corrupted.kinds)
    others = [kind for kind in corrupted.kinds if kind not in KINDS]
    words = []
    if absent:
        words.append(f"lacks {', '.join(absent)}, so that means over the benchmark's {len(BENCHMARK_KINDS)} kinds are undefined")
    if others:
        words.append(f"also has {', '.join(others)}, which no mean counts")
    return f"The folder of corrupted images {' and '.join(words)}." if words else None
