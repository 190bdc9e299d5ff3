"""Images set apart: what is learned from them (the ranges of neurons, for example) is then told of others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audit.data import Dataset
from audit.data.sampling import sample
from audit.errors import InputError
from audit.evidence import Ints
from audit.settings import Settings
from audit.text import printable


@dataclass(frozen=True, kw_only=True)
class SetApart:
    """`indices` (m,) into `dataset`, the `positions` (m,) of these images in the sample, -1 where they are not in it; `words`."""

    dataset: Dataset
    indices: Ints
    positions: Ints
    words: str


def set_apart(dataset: Dataset, indices: Ints, settings: Settings, given: Dataset | None = None) -> SetApart:
    """Images for profiles: those given, else of the same data those that the sample left over, else every second one of the sample.

    A part of the sample is taken where the rest of the data is smaller than half of it. Which images they are depends on the seed
    only; the rest does not depend on how much of the sample a time budget allows.

    Args:
        dataset: the audited data.
        indices: the sample in canonical order.
        settings: seed, sample size, and how many images to set apart at most.
        given: other data for this.
    """
    most = settings.profile.apart
    if given is not None:
        chosen = sample(given, most, settings.seed)
        return SetApart(
            dataset=given, indices=chosen, positions=np.full(len(chosen), -1), words=f"{len(chosen)} images of {given.reference}"
        )
    rest = sample(dataset, settings.sample_size + most, settings.seed)[settings.sample_size :]
    if 2 * len(rest) >= min(settings.sample_size, len(dataset.labels)):
        words = f"{len(rest)} other images of the same data, chosen by the seed"
        return SetApart(dataset=dataset, indices=rest, positions=np.full(len(rest), -1), words=words)
    places = np.arange(1, len(indices), 2)[:most]
    words = f"{len(places)} images of the sample, chosen by the seed, which are then left out of what is scored"
    return SetApart(dataset=dataset, indices=indices[places], positions=places, words=words)


def check_given(given: Dataset, dataset: Dataset) -> None:
    """Refuse profile data that are the audited data, or whose images have another shape.

    Raises:
        InputError: one of the two.
    """
    if given.image_shape != dataset.image_shape:
        raise InputError(
            f"the profile data have images of shape {given.image_shape}, the audited data {dataset.image_shape}; give both in one "
            "form and size"
        )
    if given.digest == dataset.digest:
        raise InputError(
            f"the profile data {printable(given.reference)} are the audited data; leave --profile-data out, and a part of the data "
            "is set apart"
        )
